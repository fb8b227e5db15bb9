-- N14: speech that is heard nearby; `seen.json` has who hears whom.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")

local floor = Instance.new("Part")
floor.Anchored = true
floor.Size = Vector3.new(200, 1, 200)
floor.Position = Vector3.new(0, -0.5, 0)
floor.Parent = Workspace
local places = { Ada = Vector3.new(0, 2.55, 0), Bo = Vector3.new(15, 2.55, 0), Cy = Vector3.new(30, 2.55, 0) }
Players.PlayerAdded:Connect(function(player)
	player.Character.HumanoidRootPart.Position = places[player.Name]
end)
task.spawn(function()
	task.wait(0.5)
	Players.Cy.Character.HumanoidRootPart.Position = Vector3.new(0, 2.55, 19)
	task.wait(0.5)
	Check.equal("Cy has moved", Players.Cy.Character.HumanoidRootPart.Position.X, 0)
	Check.done()
end)
