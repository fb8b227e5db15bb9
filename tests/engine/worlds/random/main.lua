-- Chance: `math.random`, `Random.new()` and streams of their own, drawn in every tick.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")

local drawn = Instance.new("Folder")
drawn.Name = "Drawn"
drawn.Parent = Workspace
local fixed, free = Random.new(7), Random.new()
local beats = 0
RunService.Heartbeat:Connect(function()
	beats += 1
	drawn:SetAttribute("shared", math.random(1, 1e9))
	drawn:SetAttribute("fixed", fixed:NextInteger(1, 1e9))
	drawn:SetAttribute("free", free:NextNumber())
	if beats == 30 then
		local rolls = {}
		for _ = 1, 600 do
			local roll = math.random(1, 6)
			rolls[roll] = (rolls[roll] or 0) + 1
		end
		for face = 1, 6 do
			Check.that("each face comes up", rolls[face] > 50, tostring(rolls[face]))
		end
		local again = Random.new(7)
		local first = again:NextInteger(1, 1e9)
		Check.equal("a seed gives the same numbers", Random.new(7):NextInteger(1, 1e9), first)
		Check.done()
	end
end)
