-- N4: characters: how they come into the world, walk, arrive, give up, turn and are teleported.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local RunService = game:GetService("RunService")

local floor = Instance.new("Part")
floor.Name = "Floor"
floor.Anchored = true
floor.Size = Vector3.new(400, 1, 400)
floor.Position = Vector3.new(0, -0.5, 0)
floor.Parent = Workspace

local characterAdded = 0

Players.PlayerAdded:Connect(function(player)
	Check.equal("the character exists before PlayerAdded", player.Character ~= nil, true)
	Check.equal("PlayerGui exists before PlayerAdded", player.PlayerGui.ClassName, "PlayerGui")
	Check.equal("the player is listed before PlayerAdded", #Players:GetPlayers(), 1)
	player.CharacterAdded:Connect(function()
		characterAdded += 1
	end)
	local character = player.Character
	Check.equal("the model has the player's name", character.Name, player.Name)
	Check.equal("it is in Workspace", character.Parent, Workspace)
	local root, humanoid = character:FindFirstChild("HumanoidRootPart"), character:FindFirstChild("Humanoid")
	Check.equal("PrimaryPart is the root", character.PrimaryPart, root)
	Check.equal("root size", root.Size, Vector3.new(2, 5, 2))
	Check.equal("root shape", root.Shape, Enum.PartType.Cylinder)
	Check.equal("root model", root:GetAttribute("ModelUrl"), "asset://player.glb")
	Check.equal("the root is unanchored", root.Anchored, false)
	for name, value in { WalkSpeed = 16, JumpPower = 50, JumpHeight = 7.2, Health = 100, MaxHealth = 100, HipHeight = 2, AutoRotate = true, Jump = false } do
		Check.equal("Humanoid." .. name, humanoid[name], value)
	end
	Check.equal("Gravity", Workspace.Gravity, 196.2)
	Check.equal("FluidForces", Workspace.FluidForces, Enum.FluidForces.Default)

	task.wait(2)
	Check.near("it stands 0.05 above the floor", root.Position.Y, 2.55, 0.011)
	Check.equal("CharacterAdded does not fire for the first character", characterAdded, 0)

	-- walking
	local arrivals = {}
	humanoid.MoveToFinished:Connect(function(reached)
		table.insert(arrivals, reached)
	end)
	root.Position = Vector3.new(0, 2.55, 0)
	task.wait()
	humanoid:MoveTo(Vector3.new(0, 0, 32))
	task.wait(0.5)
	Check.near("16 studs a second", root.Position.Z, 8, 0.6)
	Check.near("MoveDirection is the motion", humanoid.MoveDirection, Vector3.new(0, 0, 1), 0.01)
	Check.equal("it walks", humanoid:GetState(), Enum.HumanoidStateType.Running)
	Check.near("it faces the motion: -Z is forward", root.CFrame.LookVector, Vector3.new(0, 0, 1), 0.05)
	task.wait(2)
	Check.list("MoveToFinished(true)", arrivals, { true })
	Check.near("reached within 0.5 studs", root.Position.Z, 32, 0.51)
	Check.equal("MoveDirection is zero at rest", humanoid.MoveDirection, Vector3.new(0, 0, 0))

	-- cancelling
	humanoid:MoveTo(Vector3.new(100, 0, 32))
	humanoid:CancelMoveTo()
	Check.equal("events of walking fire while characters move", #arrivals, 1)
	task.wait()
	humanoid:CancelMoveTo()
	task.wait()
	Check.list("CancelMoveTo always fires false", arrivals, { true, false, false })

	-- a new MoveTo fires nothing for the old one
	humanoid:MoveTo(Vector3.new(100, 0, 32))
	task.wait(0.1)
	humanoid:MoveTo(Vector3.new(0, 0, 30))
	Check.equal("a new MoveTo fires nothing for the old one", #arrivals, 3)
	task.wait(1)
	Check.list("it arrives at the new target", arrivals, { true, false, false, true })

	-- giving up after 8 s, at a wall
	local wall = Instance.new("Part")
	wall.Anchored = true
	wall.Size = Vector3.new(40, 20, 1)
	wall.Position = Vector3.new(0, 10, 40)
	wall.Parent = Workspace
	local start = tick()
	humanoid:MoveTo(Vector3.new(0, 0, 60))
	humanoid.MoveToFinished:Wait()
	task.wait() -- from the phase of movement into the next tick
	Check.near("MoveTo gives up after 8 s", tick() - start, 8, 0.1)
	Check.equal("with false", arrivals[#arrivals], false)
	Check.that("a wall stops it", root.Position.Z < 38.6, tostring(root.Position.Z))

	-- teleport
	humanoid:MoveTo(Vector3.new(100, 0, 0))
	task.wait()
	local count = #arrivals
	root.Position = Vector3.new(-50, 2.55, -50)
	Check.equal("the value reads back unchanged", root.Position, Vector3.new(-50, 2.55, -50))
	task.wait(0.3)
	Check.near("a teleport clears the target", root.Position, Vector3.new(-50, 2.55, -50), 0.02)
	Check.equal("silently", #arrivals, count)

	-- WalkSpeed
	humanoid.WalkSpeed = 32
	humanoid:MoveTo(Vector3.new(-50, 0, 0))
	task.wait(0.5)
	Check.near("WalkSpeed is read every tick", root.Position.Z, -34, 1.1)
	humanoid.WalkSpeed = -5
	Check.equal("WalkSpeed is not negative", humanoid.WalkSpeed, 0)
	humanoid:CancelMoveTo()

	-- LoadCharacter
	local removed
	player.CharacterRemoving:Connect(function(old)
		removed = old
		Check.equal("CharacterRemoving fires while the old one is there", old.Parent, Workspace)
	end)
	player:LoadCharacter()
	Check.equal("CharacterRemoving gets the old character", removed, character)
	Check.equal("the old character is gone", character.Parent, nil)
	Check.equal("CharacterAdded fires", characterAdded, 1)
	Check.equal("the new one is at (0, 6, 0)", player.Character.HumanoidRootPart.Position, Vector3.new(0, 6, 0))
	task.wait(1)
	local new = player.Character
	new.Humanoid:MoveTo(Vector3.new(10, 0, 0))
	task.wait(1.5)
	Check.near("the new one walks", new.HumanoidRootPart.Position.X, 10, 0.6)
	Check.done()
end)
