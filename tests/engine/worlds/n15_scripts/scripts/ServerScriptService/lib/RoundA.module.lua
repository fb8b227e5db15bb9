return require(script.Parent.RoundB)
