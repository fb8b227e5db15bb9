-- N5: cargo that is welded to a character goes where the character goes.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")

local floor = Instance.new("Part")
floor.Anchored = true
floor.Size = Vector3.new(400, 1, 400)
floor.Position = Vector3.new(0, -0.5, 0)
floor.Parent = Workspace

Players.PlayerAdded:Connect(function(player)
	local root, humanoid = player.Character.HumanoidRootPart, player.Character.Humanoid
	local function load(name, anchored, collides, offset)
		local box = Instance.new("Part")
		box.Name = name
		box.Size = Vector3.new(1, 1, 1)
		box.Anchored = anchored
		box.CanCollide = collides
		box.Position = root.Position + Vector3.new(0, 20, 0)
		box.Parent = Workspace
		local weld = Instance.new("Weld")
		weld.Part0, weld.Part1 = root, box
		weld.C0 = CFrame.new(offset)
		weld.Parent = box
		return box, weld
	end
	local held, weld = load("Held", true, true, Vector3.new(0, 4, 0))
	local flag = load("Flag", false, false, Vector3.new(0, 0, 2))
	task.wait(1)
	Check.near("anchored cargo is above its bearer", held.Position, root.Position + Vector3.new(0, 4, 0), 1e-3)
	humanoid:MoveTo(Vector3.new(20, 0, 20))
	for _ = 1, 60 do
		task.wait()
		local at = root.CFrame * CFrame.new(0, 4, 0)
		if (held.Position - at.Position).Magnitude > 1e-3 then
			Check.near("cargo keeps its place in every tick", held.Position, at.Position, 1e-3)
		end
	end
	Check.near("cargo goes with a walker", flag.Position, (root.CFrame * CFrame.new(0, 0, 2)).Position, 1e-3)
	Check.near("and turns with it", flag.CFrame.LookVector, root.CFrame.LookVector, 1e-3)
	root.Position = Vector3.new(-100, 2.55, 0)
	task.wait()
	task.wait()
	Check.near("and is teleported with it", held.Position, root.Position + Vector3.new(0, 4, 0), 1e-3)
	weld:Destroy()
	local left = held.Position
	humanoid:MoveTo(Vector3.new(-80, 0, 0))
	task.wait(1)
	Check.equal("without the weld it stays", held.Position, left)
	player:LoadCharacter()
	task.wait(0.1)
	Check.done()
	while true do
		humanoid = player.Character and player.Character:FindFirstChild("Humanoid")
		humanoid:MoveTo(Vector3.new(math.random(-30, 30), 0, math.random(-30, 30)))
		task.wait(0.7)
	end
end)
