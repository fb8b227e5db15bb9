-- N13: remote events, physics groups, BindToClose, bots, sounds.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Events = game:GetService("RemoteEventService")
local Physics = game:GetService("PhysicsService")
local Players = game:GetService("Players")

Events:FireAllClients("  Trimmed ", { 1, 2 })
Events:FireAllClients("", { ignored = true })
Events:FireAllClientsUnreliable("Values", { at = Vector3.new(1, 2, 3), color = Color3.new(1, 0, 0), empty = {}, holes = { 1, nil, 3 } })
game:BindToClose(function() end)

-- collision groups
Physics:RegisterCollisionGroup("Ghosts")
Check.equal("groups collide by default", Physics:CollisionGroupsAreCollidable("Ghosts", "Default"), true)
Physics:CollisionGroupSetCollidable("Ghosts", "Default", false)
Check.equal("both ways", Physics:CollisionGroupsAreCollidable("Default", "Ghosts"), false)
for index = 1, 30 do
	Physics:RegisterCollisionGroup("Group" .. index)
end
Check.that("32 groups, not more", not pcall(Physics.RegisterCollisionGroup, Physics, "OneTooMany"))

local function part(position, size, group)
	local made = Instance.new("Part")
	made.Position = position
	made.Size = size
	made.CollisionGroup = group
	made.Parent = Workspace
	return made
end
local floor = part(Vector3.new(0, 0, 0), Vector3.new(50, 1, 50), "Default")
floor.Anchored = true
local ghost = part(Vector3.new(-5, 10, 0), Vector3.new(2, 2, 2), "Ghosts")
local solid = part(Vector3.new(5, 10, 0), Vector3.new(2, 2, 2), "Default")

local bot = Players:AddBot("Robby")

task.spawn(function()
	task.wait(1.5)
	Check.that("a ghost falls through", ghost.Position.Y < -3, tostring(ghost.Position.Y))
	Check.near("a solid one rests", solid.Position.Y, 1.5, 0.05)
	local robby = Players:FindFirstChild("Robby")
	Check.that("a bot is a player", robby ~= nil)
	Check.that("with a character", robby.Character ~= nil and robby.Character.Humanoid ~= nil)
	robby.Character.HumanoidRootPart.Position = Vector3.new(0, 3, 10)
	task.wait(0.2)
	robby.Character.Humanoid:MoveTo(Vector3.new(10, 0, 10))
	task.wait(1.5)
	Check.near("that scripts move", robby.Character.HumanoidRootPart.Position.X, 10, 0.6)

	local sound = Instance.new("Sound")
	sound.SoundId = "asset://bell.ogg"
	sound.Parent = floor
	sound:Play()
	Check.equal("a sound plays", sound.Playing, true)
	sound:Stop()
	Check.equal("and stops", sound.Playing, false)
	Check.done()
end)
