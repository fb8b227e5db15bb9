task.wait()
local class = CLASS
local things = {}
for _, name in PROPERTIES do
    local thing = make(class)
    if thing then
        try(read, thing, name)
        for _ = 1, CALLS do
            try(write, thing, name, any())
            try(read, thing, name)
        end
        for _ = 1, 2 do
            try(write, any(), name, any())
            try(read, any(), name)
        end
    end
end
for _, name in METHODS do
    local thing = make(class)
    if thing then
        local ok, method = pcall(read, thing, name)
        if not ok or type(method) ~= "function" then
            method = function(self, ...)
                return (self :: any)[name](self, ...)
            end
        end
        task.spawn(call, method, thing)
        task.spawn(call, method)
    end
end
for _, name in EVENTS do
    local thing = make(class)
    if thing then
        local signal = thing[name]
        for _, verb in { "Connect", "Once", "Wait" } do
            task.spawn(call, signal[verb], signal)
            task.spawn(call, signal[verb])
        end
    end
end
task.wait()
print("tries", tries)
