-- N2: threads: every wait ends at the first tick at or after its time, in the order of waiting.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")

local order = {}
local function note(what)
	table.insert(order, what)
end

-- what main defers, and a wait that it does not time, go on in the first tick, before Heartbeat:
-- first what was deferred, and what that defers in turn
local beats, first = 0, {}
RunService.Heartbeat:Connect(function()
	beats += 1
end)
task.delay(0, function()
	table.insert(first, "delay " .. beats)
end)
task.defer(function()
	table.insert(first, "defer " .. beats)
	task.defer(table.insert, first, "nested")
end)
Check.equal("task.wait never returns 0", task.wait(), 1 / 60)
table.insert(first, "wait " .. beats)
Check.list("in the order of waiting", first, { "defer 0", "nested", "delay 0", "wait 0" })
RunService.Heartbeat:Wait() -- the rest is about what begins to wait within a tick

-- spawn runs at once, up to its first yield
local spawned = task.spawn(function(a, b)
	note("spawned " .. a .. b)
	task.wait()
	note("after wait")
end, "x", "y")
note("after spawn")
Check.equal("task.spawn returns the thread", type(spawned), "thread")
Check.list("task.spawn runs at once", order, { "spawned xy", "after spawn" })

local function waits(seconds, ticks)
	task.spawn(function()
		local before, start = at, tick()
		local elapsed = task.wait(seconds)
		Check.near("task.wait(" .. tostring(seconds) .. ") takes " .. ticks .. " ticks", (tick() - start) * 60, ticks, 1e-6)
		Check.near("task.wait returns the elapsed seconds", elapsed, tick() - start, 1e-9)
	end)
end
waits(nil, 1)
waits(0, 1)
waits(-1, 1)
waits(1 / 60, 1)
waits(0.02, 2)
waits(0.1, 6)
waits(0.5, 30)

-- due threads resume in the order in which they were scheduled; deferred ones come before them
local due = {}
task.delay(0, function()
	table.insert(due, "delay")
end)
task.defer(function(value)
	table.insert(due, "defer " .. value)
end, 5)
task.spawn(function()
	task.wait()
	table.insert(due, "wait")
end)
task.delay(1 / 60, function(a, b)
	table.insert(due, "delay " .. a .. b)
end, 1, 2)

-- a bare yield lasts until a script resumes the thread, and gets its values
local yielded = task.spawn(function()
	local start = tick()
	Check.equal("a bare yield gets the values", select("#", coroutine.yield()), 2)
	Check.near("a bare yield lasts until it is resumed", tick() - start, 0.1, 1e-9)
	note("resumed")
end)
task.delay(0.1, function()
	task.spawn(yielded, 1, 2)
	Check.equal("the thread was suspended until then", order[#order], "resumed")
end)

-- an error ends its thread alone
task.spawn(function()
	error("ends its thread alone")
end)

-- task.spawn resumes a thread
local waiting = coroutine.create(function(first)
	local second = coroutine.yield()
	note(first .. second)
end)
task.spawn(waiting, "one ")
task.spawn(waiting, "two")
Check.equal("task.spawn resumes a thread with values", order[#order], "one two")

-- cancel
local cancelled = task.delay(0.05, function()
	Check.that("a cancelled thread does not run", false)
end)
task.cancel(cancelled)
task.cancel(cancelled)
local sleeper = task.spawn(function()
	task.wait(0.05)
	Check.that("a cancelled wait does not end", false)
end)
task.cancel(sleeper)

-- pcall across a wait
task.spawn(function()
	local ok, problem = pcall(function()
		task.wait(0.05)
		error("late")
	end)
	Check.that("pcall catches an error after a wait", not ok and string.find(problem, "late") ~= nil)
end)

task.spawn(function()
	task.wait(1)
	Check.list("FIFO over all kinds of waiting", due, { "defer 5", "delay", "wait", "delay 12" })
	local before = tick()
	wait(0.1)
	Check.near("wait works", tick() - before, 0.1, 1e-9)
	Check.equal("os.clock is simulation time", os.clock(), tick())
	Check.equal("time is simulation time", time(), tick())
	Check.equal("elapsedTime is simulation time", elapsedTime(), tick())
	Check.equal("os.time is simulation time", os.time(), math.floor(tick()))
	Check.equal("math.random(nil, nil) means no arguments", math.random(nil, nil) < 1, true)
	local drawn = math.random(3, nil)
	Check.that("math.random(n, nil) draws from 1 to n", drawn >= 1 and drawn <= 3 and drawn % 1 == 0)
	Check.done()
end)
