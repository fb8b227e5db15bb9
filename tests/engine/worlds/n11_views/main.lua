-- N11, N12: what is there to be seen; `seen.json` has what agents and spectators see of it.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local Events = game:GetService("RemoteEventService")

local function part(name, position, size, properties, attributes)
	local made = Instance.new("Part")
	made.Name = name
	made.Anchored = true
	made.Position = position
	made.Size = size
	for key, value in properties or {} do
		made[key] = value
	end
	for key, value in attributes or {} do
		made:SetAttribute(key, value)
	end
	made.Parent = Workspace
	return made
end
part("Floor", Vector3.new(0, -0.5, 0), Vector3.new(600, 1, 600))
part("Hidden", Vector3.new(5, 1, 0), Vector3.new(1, 1, 1)):AddTag("Static")
part("Near", Vector3.new(0, 1, 99), Vector3.new(2, 2, 2))
part("Far", Vector3.new(0, 1, 103), Vector3.new(2, 2, 2))
part("Model", Vector3.new(1.23456, 1, -20), Vector3.new(1.005, 2, 3.14159), {
	Color = Color3.fromRGB(255, 0, 51),
	Material = Enum.Material.Neon,
	Transparency = 0.5,
	Shape = Enum.PartType.Ball,
}, { ModelUrl = "asset://tree.glb", b = 2, a = Vector3.new(1, 2, 3), list = { 1, "two" } })
part("Turned", Vector3.new(10, 1, -20), Vector3.new(1, 1, 1), { CFrame = CFrame.new(10, 1, -20) * CFrame.Angles(0, math.pi / 2, 0) })
local empty, full = Instance.new("Folder"), Instance.new("Folder")
empty.Name, full.Name = "Empty", "Full"
full:SetAttribute("Round", 3)
empty.Parent, full.Parent = Workspace, Workspace
local wall = part("Wall", Vector3.new(20, 5, 0), Vector3.new(1, 10, 20), { Transparency = 1, CanCollide = false })

local places = { Ada = Vector3.new(0, 2.55, 0), Bo = Vector3.new(10, 2.55, 0), Cy = Vector3.new(30, 2.55, 0), Di = Vector3.new(0, 2.55, 90) }
Players.PlayerAdded:Connect(function(player)
	player.Character.HumanoidRootPart.Position = places[player.Name]
	player:SetAttribute("Team", "red")
	player.Character.Humanoid.Health = 57.9
end)
task.spawn(function()
	task.wait(0.5)
	wall:Destroy()
	Players.Ada:SetAttribute("ObservationRadius", 50)
	Events:FireAllClients("Gone", { what = "wall", at = Vector3.new(20, 5, 0) })
	task.wait(0.5)
	Players.Ada:SetAttribute("ObservationRadius", 5000)
	Players.Bo.Character.HumanoidRootPart.Position = Vector3.new(10, 2.55, 40)
	task.wait(0.5)
	Check.that("played", true)
	Check.done()
end)
