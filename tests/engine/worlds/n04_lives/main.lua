-- N4: characters again and again, characters without players, death, and roots that scripts make.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")

local function part(name, position, size, parent)
	local made = Instance.new("Part")
	made.Name = name
	made.Position = position
	made.Size = size
	made.Parent = parent
	return made
end
part("Floor", Vector3.new(0, -0.5, 0), Vector3.new(400, 1, 400), Workspace).Anchored = true

local function makeWalker(name, at)
	local model = Instance.new("Model")
	model.Name = name
	local root = part("HumanoidRootPart", at, Vector3.new(2, 5, 2), model)
	model.PrimaryPart = root
	local humanoid = Instance.new("Humanoid")
	humanoid.Parent = model
	model.Parent = Workspace
	return model, root, humanoid
end

local guard, guardRoot, guardHumanoid = makeWalker("Guard", Vector3.new(50, 4, 0))

Players.PlayerAdded:Connect(function(player)
	local events = {}
	player.CharacterRemoving:Connect(function(old)
		table.insert(events, "removing " .. tostring(old.Parent))
	end)
	player.CharacterAdded:Connect(function(new)
		table.insert(events, "added " .. tostring(new.Parent))
	end)
	local first = player.Character
	Check.near("the first stands where its number says", first.HumanoidRootPart.Position, Vector3.new(-1.5, 6, 0), 1e-5)
	first.Humanoid.Health = 0
	task.wait(1)
	Check.equal("the dead do not come back by themselves", player.Character, first)
	Check.equal("nor do they heal", first.Humanoid.Health, 0)
	first.Humanoid:MoveTo(Vector3.new(10, 0, 0))
	task.wait(1)
	Check.near("the dead walk", first.HumanoidRootPart.Position.X, 10, 0.6)
	player:LoadCharacter()
	Check.list("removing, then added", events, { "removing Workspace", "added Workspace" })
	local second = player.Character
	Check.that("a new one", second ~= first and first.Parent == nil)
	Check.equal("with full health", second.Humanoid.Health, 100)
	for _ = 1, 3 do
		player:LoadCharacter()
	end
	Check.equal("each one counts", #events, 8)
	Check.equal("one character in Workspace", #Workspace:GetChildren() - 5 - #Players:GetPlayers() < 2, true)
	task.wait(1)
	local root = player.Character.HumanoidRootPart
	Check.near("the last one stands", root.Position.Y, 2.55, 0.011)
	root.CFrame = CFrame.new(0, 2.55, 30) * CFrame.Angles(0, math.pi / 2, 0)
	task.wait(0.1)
	Check.near("a turned root stays turned", root.CFrame.LookVector, Vector3.new(-1, 0, 0), 1e-3)
	root.Position = Vector3.new(0, 200, 30)
	task.wait(0.5)
	Check.near("falling is g t² / 2", 200 - root.Position.Y, 0.5 * 196.2 * 0.25, 1.5)
	task.wait(2)
	Check.equal("no damage by falling", player.Character.Humanoid.Health, 100)
	player.Character:Destroy()
	task.wait(0.1)
	Check.equal("without a character the player stays", player.Parent, Players)
	player:LoadCharacter()
	task.wait(0.1)
	Check.that("and gets another one", player.Character.Parent == Workspace)
	Check.done()
end)

task.spawn(function()
	task.wait(1)
	Check.near("a character without a player stands", guardRoot.Position.Y, 2.55, 0.011)
	guardHumanoid:MoveTo(Vector3.new(50, 0, 12))
	Check.equal("and walks", guardHumanoid.MoveToFinished:Wait(), true)
	Check.near("to its target", guardRoot.Position, Vector3.new(50, 2.55, 12), 0.6)
	guardHumanoid:Move(Vector3.new(1, 0, 0))
	task.wait(0.5)
	Check.near("Move walks on", guardRoot.Position.X, 58, 0.6)
	guardHumanoid:Move(Vector3.new(0, 0, 0))
	local twin = guard:Clone()
	twin:PivotTo(CFrame.new(80, 2.55, 0))
	twin.Parent = Workspace
	twin.Humanoid:MoveTo(Vector3.new(80, 0, 10))
	task.wait(1)
	Check.near("a copy walks too", twin.HumanoidRootPart.Position.Z, 10, 0.6)
	guard:Destroy()
	twin.Humanoid:Destroy()
	task.wait()
	twin.HumanoidRootPart:ApplyImpulse(Vector3.new(0, 5000, 0))
	task.wait(0.3)
	Check.that("without a Humanoid a root is a part", twin.HumanoidRootPart.Position.Y > 3, tostring(twin.HumanoidRootPart.Position))
end)
