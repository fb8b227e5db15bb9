-- One thread of each kind that waits: the snapshot was saved while all of them did.
local event = Instance.new("BindableEvent", workspace)
event.Name = "Ping"

local function say(...)
    print(tick() * 60, ...)
end

task.spawn(function()
    for count = 1, 3 do
        say("bare", count, coroutine.yield(count))
    end
end)
task.spawn(function()
    local inner = coroutine.wrap(function()
        while true do
            say("wrapped", coroutine.yield())
        end
    end)
    inner()
    while true do
        task.wait(0.05)
        inner(math.floor(tick() * 60))
    end
end)
task.delay(0.1, function(...)
    say("delayed", ...)
end, "a", { 1, 2 })
local cancelled = task.delay(0.2, error, "never")
task.spawn(function()
    say("timed", math.round(task.wait(0.1) * 60))
    task.cancel(cancelled)
end)
task.spawn(function()
    while true do
        say("heard", event.Event:Wait())
    end
end)
event.Event:Connect(function(value)
    task.defer(function()
        say("deferred", value)
    end)
end)
task.spawn(function()
    say("child", workspace:WaitForChild("Late").Name)
    say("missing", workspace:WaitForChild("Never", 0.2))
end)
task.spawn(function()
    say("caught", pcall(function()
        task.wait(0.1)
        error({ code = 7 })
    end))
end)
task.spawn(function()
    task.wait(0.15)
    local late = Instance.new("Folder", workspace)
    late.Name = "Late"
    event:Fire("one", 1)
    event:Fire("two", 2)
end)
