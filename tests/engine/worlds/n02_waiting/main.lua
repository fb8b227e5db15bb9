-- N2: threads that wait in every way at the same time, for ever; for snapshots at each tick.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")
local store = game:GetService("DataStoreService"):GetDataStore("waiting")

local log = Instance.new("Folder")
log.Name = "Log"
log.Parent = Workspace
local counts = {}
local function count(what)
	counts[what] = (counts[what] or 0) + 1
	log:SetAttribute(what, counts[what])
end
local function forever(what, action, ...)
	task.spawn(function(...)
		while true do
			action(...)
			count(what)
		end
	end, ...)
end

forever("wait", task.wait, 0.05)
local yielded = {}
forever("yield", function()
	yielded[1] = coroutine.running()
	coroutine.yield()
end)
RunService.Heartbeat:Connect(function()
	task.spawn(yielded[1])
end)
forever("signal", function()
	RunService.Heartbeat:Wait()
	log.AttributeChanged:Wait()
end)
forever("child", function()
	log:WaitForChild("Leaf", 0.1)
	local leaf = log:WaitForChild("Leaf")
	leaf:Destroy()
end)
forever("leaf", function()
	task.wait(math.random(1, 9) / 60)
	local leaf = Instance.new("Folder")
	leaf.Name = "Leaf"
	leaf.Parent = log
end)
forever("caught", function()
	local ok, problem = pcall(function()
		local ok, inner = pcall(function()
			task.wait(0.03)
			error({ code = counts.caught })
		end)
		RunService.Stepped:Wait()
		error(inner)
	end)
	assert(not ok and type(problem) == "table")
end)
forever("store", function()
	store:SetAsync("n", counts.store or 0)
	assert(store:GetAsync("n") == (counts.store or 0))
	store:UpdateAsync("sum", function(old)
		return (old or 0) + 1
	end)
end)
forever("delay", function()
	local thread = coroutine.running()
	task.delay(0.04, function(value)
		task.spawn(thread, value)
	end, counts.delay)
	coroutine.yield()
end)
forever("defer", function()
	local thread = coroutine.running()
	task.defer(task.spawn, thread)
	coroutine.yield()
end)
forever("iterator", function()
	for key, value in coroutine.wrap(function()
		for index = 1, 3 do
			coroutine.yield(index, index * 2)
		end
	end) do
		assert(value == key * 2)
		task.wait()
	end
end)
forever("cancelled", function()
	local thread = task.delay(5, error, "never")
	task.wait(0.02)
	task.cancel(thread)
end)
forever("once", function()
	local done = false
	RunService.Heartbeat:Once(function()
		task.wait()
		done = true
	end)
	repeat
		task.wait()
	until done
end)
local meta = setmetatable({}, {
	__index = function(_, key)
		return key .. (counts.wait or 0)
	end,
})
forever("sorted", function()
	local list = {}
	for index = 1, 5 do
		list[index] = math.random(100)
	end
	table.sort(list, function(a, b)
		return a > b
	end)
	log:SetAttribute("Sorted", list)
	log:SetAttribute("Meta", meta.x)
	task.wait(0.1)
end)

task.spawn(function()
	task.wait(1)
	for _, what in { "wait", "yield", "signal", "child", "leaf", "caught", "store", "delay", "defer", "iterator", "cancelled", "once", "sorted" } do
		Check.that(what .. " goes on", (counts[what] or 0) >= 3, tostring(counts[what]))
	end
	Check.done()
end)
