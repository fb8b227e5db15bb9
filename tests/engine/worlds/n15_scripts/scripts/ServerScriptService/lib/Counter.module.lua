local count = (_G.loads or 0) + 1
_G.loads = count
return {
	name = script.Name,
	loads = function()
		return _G.loads
	end,
}
