-- N8: 1,000 additions and removals: ids go on growing, nothing is left behind.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")

local floor = Instance.new("Part")
floor.Anchored = true
floor.Size = Vector3.new(200, 1, 200)
floor.Parent = Workspace
local yard = Instance.new("Folder")
yard.Name = "Yard"
yard.Parent = Workspace

local added, removed, touched = 0, 0, 0
yard.ChildAdded:Connect(function()
	added += 1
end)
yard.ChildRemoved:Connect(function()
	removed += 1
end)
floor.Touched:Connect(function()
	touched += 1
end)

local lastId, made = 0, {}
local function make(index)
	local part = Instance.new("Part")
	part.Name = "part" .. index
	part.Size = Vector3.new(1 + index % 3, 1, 1)
	part.Position = Vector3.new(index % 17 * 3 - 25, 2 + index % 5, index % 13 * 3 - 20)
	part.Anchored = index % 4 == 0
	part.Shape = if index % 5 == 0 then Enum.PartType.Ball else Enum.PartType.Block
	part.Parent = yard
	local id = tonumber(part:GetDebugId())
	if id <= lastId then
		Check.that("ids grow", false)
	end
	lastId = id
	table.insert(made, part)
end

local count = 0
RunService.Heartbeat:Connect(function()
	if count < 1000 then
		for _ = 1, 10 do
			count += 1
			make(count)
		end
	end
	while #made > (if count < 1000 then 60 else 0) do
		local at = math.random(1, #made)
		local part = table.remove(made, at)
		if part.Parent and at % 2 == 0 then
			part:Destroy()
		else
			part.Parent = nil
		end
	end
end)

task.spawn(function()
	repeat
		task.wait()
	until count == 1000
	task.wait(0.1)
	Check.equal("1000 came", added, 1000)
	Check.equal("1000 went", removed, 1000)
	Check.equal("nothing is left", #yard:GetChildren(), 0)
	Check.that("some have touched the floor", touched > 50, tostring(touched))
	Check.equal("nothing is left to hit", #Workspace:GetPartBoundsInBox(CFrame.new(0, 5, 0), Vector3.new(100, 8, 100)), 0)
	Check.done()
	count = 0
	while true do
		task.wait(1)
		count = 900
	end
end)
