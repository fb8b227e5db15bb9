-- N6: touches: who is told, in which order, and when it ends.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")

local order = {}
local function part(name, properties)
	local made = Instance.new("Part")
	made.Name = name
	made.Size = Vector3.new(4, 4, 4)
	for key, value in properties do
		made[key] = value
	end
	made.Touched:Connect(function(other)
		table.insert(order, name .. "+" .. other.Name)
	end)
	made.TouchEnded:Connect(function(other)
		table.insert(order, name .. "-" .. other.Name)
	end)
	made.Parent = Workspace
	return made
end

local floor = part("floor", { Anchored = true, Size = Vector3.new(200, 1, 200), Position = Vector3.new(0, -0.5, 0) })
local a = part("a", { Anchored = true, Position = Vector3.new(50, 10, 0) })
local b = part("b", { Anchored = true, Position = Vector3.new(52, 10, 0) })
local sensor = part("sensor", { Anchored = true, CanCollide = false, Position = Vector3.new(-30, 10, 0) })
local numb = part("numb", { Anchored = true, CanCollide = false, CanTouch = false, Position = Vector3.new(-30, 10, 0) })
local box = part("box", { Position = Vector3.new(-30, 30, 0), Size = Vector3.new(2, 2, 2) })

task.spawn(function()
	task.wait(2)
	table.remove(order, table.find(order, "floor+HumanoidRootPart"))
	Check.list("through the sensor, then onto the floor; the smaller id is told first", order, {
		"sensor+box", "box+sensor", "sensor-box", "box-sensor", "floor+box", "box+floor",
	})
	order = {}
	box:Destroy()
	task.wait(0.1)
	Check.list("a destroyed part's touches end silently", order, {})
end)

Players.PlayerAdded:Connect(function(player)
	local root, humanoid = player.Character.HumanoidRootPart, player.Character.Humanoid
	task.wait(3)
	order = {}
	local pad = part("pad", { Anchored = true, Size = Vector3.new(6, 0.4, 6), Position = Vector3.new(0, 0.2, 20) })
	local coin = part("coin", { Anchored = true, CanCollide = false, Size = Vector3.new(2, 2, 2), Position = Vector3.new(0, 3, 30) })
	root.Position = Vector3.new(0, 2.55, 10)
	task.wait(0.2)
	order = {}
	humanoid:MoveTo(Vector3.new(0, 0, 40))
	task.wait(3)
	local seen = {}
	for _, event in order do
		seen[event] = true
	end
	Check.that("a character touches a pad that it walks on", seen["pad+HumanoidRootPart"] == true)
	Check.that("and leaves it", seen["pad-HumanoidRootPart"] == true)
	Check.that("and a coin", seen["coin+HumanoidRootPart"] == true)
	Check.done()
end)
