return require(script.Parent.RoundA)
