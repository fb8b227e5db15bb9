-- N5: a pile of boxes comes to rest, sleeps, and wakes when it is hit.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local function part(properties)
	local made = Instance.new("Part")
	for name, value in properties do
		made[name] = value
	end
	made.Parent = Workspace
	return made
end
part({ Anchored = true, Size = Vector3.new(100, 1, 100), Position = Vector3.new(0, -0.5, 0) })
local boxes = {}
for layer = 0, 3 do
	for index = 0, 4 do
		table.insert(boxes, part({ Size = Vector3.new(2, 2, 2), Position = Vector3.new(index * 2.1 + layer * 0.2, 1.2 + layer * 2.3, 0) }))
	end
end
for index = 1, 10 do
	table.insert(boxes, part({ Shape = Enum.PartType.Ball, Size = Vector3.new(1, 1, 1), Position = Vector3.new(index, 12 + index, 0.1 * index) }))
end

task.spawn(function()
	task.wait(5)
	local before = {}
	for index = 1, 20 do
		before[index] = boxes[index].CFrame
	end
	task.wait(1)
	for index = 1, 20 do
		Check.near("box " .. index .. " rests", boxes[index].Position, before[index].Position, 0.02)
		Check.that("above the floor", boxes[index].Position.Y > 0.9)
	end
	local ram = part({ Size = Vector3.new(3, 3, 3), Position = Vector3.new(-20, 1.6, 0) })
	task.wait()
	ram.Velocity = Vector3.new(120, 0, 0)
	task.wait(1)
	local moved = 0
	for index = 1, 20 do
		if (boxes[index].Position - before[index].Position).Magnitude > 0.3 then
			moved += 1
		end
	end
	Check.that("a hit wakes the pile", moved >= 3, tostring(moved))
	boxes[1]:Destroy()
	Check.done()
end)
