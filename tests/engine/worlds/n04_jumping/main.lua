-- N4: jumping, falling, steps and slopes, states, health.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local RunService = game:GetService("RunService")

local function block(position, size, rotation)
	local part = Instance.new("Part")
	part.Anchored = true
	part.Size = size
	part.CFrame = CFrame.new(position) * (rotation or CFrame.new())
	part.Parent = Workspace
	return part
end
block(Vector3.new(0, -0.5, 0), Vector3.new(400, 1, 400))
block(Vector3.new(20, 0.45, 0), Vector3.new(8, 0.9, 8)) -- a step of 0.9: climbed
block(Vector3.new(20, 0.75, 30), Vector3.new(8, 1.5, 8)) -- one of 1.5: not
block(Vector3.new(60, 0, 0), Vector3.new(30, 1, 10), CFrame.Angles(0, 0, math.rad(30))) -- climbed
block(Vector3.new(60, 0, 40), Vector3.new(30, 1, 10), CFrame.Angles(0, 0, math.rad(60))) -- too steep

Players.PlayerAdded:Connect(function(player)
	local character = player.Character
	local root, humanoid = character.HumanoidRootPart, character.Humanoid
	local states = {}
	humanoid.StateChanged:Connect(function(old, new)
		table.insert(states, new.Name)
	end)
	task.wait(2)
	Check.list("it falls, lands for one tick, and stands", states, { "Freefall", "Landed", "Running" })

	local function jump()
		local top, ticks = 0, 0
		local connection = RunService.Heartbeat:Connect(function()
			top = math.max(top, root.Position.Y - 2.55)
		end)
		states = {}
		humanoid.Jump = true
		task.wait(1)
		connection:Disconnect()
		return top
	end
	Check.near("a jump is 6.8 studs high", jump(), 6.8, 0.15)
	Check.list("jumping, falling, landing, running", states, { "Jumping", "Freefall", "Landed", "Running" })
	humanoid:Jump()
	task.wait(0.1)
	Check.that("humanoid:Jump() jumps", root.Position.Y > 4)
	Check.equal("humanoid.Jump is a boolean", type(humanoid.Jump), "boolean")
	task.wait(1)
	humanoid.Jump = false
	task.wait(0.1)
	Check.near("Jump = false does nothing", root.Position.Y, 2.55, 0.011)
	humanoid.JumpPower = 20
	Check.that("JumpPower limits it", jump() < 1.6)
	humanoid.JumpPower = 500
	Check.near("and so does JumpHeight 7.2", jump(), 7.2, 0.9)
	humanoid.JumpPower = 50

	-- steps and slopes
	local function walk(from, to)
		root.Position = from
		task.wait(0.2)
		humanoid:MoveTo(to)
		task.wait(2)
		humanoid:CancelMoveTo()
		return root.Position
	end
	Check.near("a step of 0.9 is climbed", walk(Vector3.new(10, 2.55, 0), Vector3.new(20, 0, 0)).Y, 3.45, 0.05)
	Check.that("one of 1.5 is not", walk(Vector3.new(10, 2.55, 30), Vector3.new(20, 0, 30)).X < 15.1)
	Check.that("30 degrees are climbed", walk(Vector3.new(40, 2.55, 0), Vector3.new(66, 0, 0)).Y > 5)
	Check.that("60 degrees are not", walk(Vector3.new(40, 2.55, 40), Vector3.new(66, 0, 40)).Y < 5)

	-- velocity: Y is vertical speed
	root.Position = Vector3.new(-50, 2.55, 0)
	task.wait(0.1)
	root.Velocity = Vector3.new(0, 60, 0)
	task.wait(0.1)
	Check.that("writing Velocity throws it up", root.Position.Y > 6, tostring(root.Position.Y))
	task.wait(1)

	-- health
	local healths, deaths = {}, 0
	humanoid.HealthChanged:Connect(function(health)
		table.insert(healths, health)
	end)
	humanoid.Died:Connect(function()
		deaths += 1
	end)
	humanoid:TakeDamage(30)
	humanoid.Health = 70
	humanoid.Health = 500
	humanoid.Health = -5
	humanoid.Health = -5
	humanoid.Health = 10
	humanoid:TakeDamage(50)
	Check.list("HealthChanged on change only; 0 to MaxHealth", healths, { 70, 100, 0, 10, 0 })
	Check.equal("Died each time that it passes to 0", deaths, 2)
	humanoid.MaxHealth = 50
	humanoid.Health = 80
	Check.equal("MaxHealth clamps", humanoid.Health, 50)
	humanoid.MaxHealth = 20
	Check.equal("lowering MaxHealth leaves Health", humanoid.Health, 50)
	humanoid:ChangeState(Enum.HumanoidStateType.Physics)
	Check.equal("ChangeState overwrites", humanoid:GetState(), Enum.HumanoidStateType.Physics)

	-- Running: studs per second
	local speeds = {}
	humanoid.Running:Connect(function(speed)
		table.insert(speeds, speed)
	end)
	humanoid:MoveTo(root.Position + Vector3.new(-8, 0, 0))
	task.wait(1)
	Check.near("Running gets studs per second", speeds[1], 16, 0.5)
	Check.near("and 0 at rest", speeds[#speeds], 0, 0.01)
	Check.done()
end)
