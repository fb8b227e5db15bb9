table.insert(_G.order, script.Name)
