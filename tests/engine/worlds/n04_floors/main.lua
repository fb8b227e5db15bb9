-- N4: floors that move carry a character; parts that move into it push it.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local RunService = game:GetService("RunService")

local function block(position, size)
	local part = Instance.new("Part")
	part.Anchored = true
	part.Size = size
	part.Position = position
	part.Parent = Workspace
	return part
end
block(Vector3.new(0, -0.5, 0), Vector3.new(400, 1, 400))
local ferry = block(Vector3.new(0, 9.5, 50), Vector3.new(12, 1, 12))
local lift = block(Vector3.new(40, 0.5, 0), Vector3.new(12, 1, 12))
local pusher = block(Vector3.new(-60, 3, 0), Vector3.new(2, 6, 12))

local moving
RunService.Heartbeat:Connect(function(dt)
	if moving == "ferry" then
		ferry.Position += Vector3.new(6 * dt, 0, 0)
	elseif moving == "lift" then
		lift.Position += Vector3.new(0, 3 * dt, 0)
	elseif moving == "sink" then
		lift.Position -= Vector3.new(0, 3 * dt, 0)
	elseif moving == "pusher" then
		pusher.Position += Vector3.new(5 * dt, 0, 0)
	end
end)

Players.PlayerAdded:Connect(function(player)
	local root, humanoid = player.Character.HumanoidRootPart, player.Character.Humanoid
	root.Position = Vector3.new(0, 12.55, 50)
	task.wait(0.5)
	moving = "ferry"
	task.wait(1)
	moving = nil
	task.wait(0.1)
	Check.near("a ferry carries", root.Position.X, ferry.Position.X, 0.4)
	Check.near("at its height", root.Position.Y, 12.55, 0.1)
	humanoid:MoveTo(ferry.Position + Vector3.new(0, 0, 3))
	task.wait(0.5)
	Check.near("one can walk on it", root.Position.Z, 53, 0.6)

	root.Position = Vector3.new(40, 3.6, 0)
	task.wait(0.3)
	moving = "lift"
	task.wait(2)
	Check.near("a lift carries up", root.Position.Y - lift.Position.Y, 3.05, 0.3)
	moving = "sink"
	task.wait(1)
	Check.near("and down", root.Position.Y - lift.Position.Y, 3.05, 0.3)
	moving = nil

	root.Position = Vector3.new(-56, 2.55, 0)
	task.wait(0.3)
	moving = "pusher"
	task.wait(2)
	moving = nil
	Check.that("a moving wall pushes", root.Position.X > pusher.Position.X + 1.5, tostring(root.Position.X))
	Check.done()
end)
