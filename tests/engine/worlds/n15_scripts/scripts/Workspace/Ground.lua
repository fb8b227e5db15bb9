_G.order = { script.Name }
_G.sawGlobal = tostring(mine)
