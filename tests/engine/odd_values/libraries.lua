for _, name in { "Vector3", "CFrame", "Color3", "UDim", "UDim2", "Region3", "RaycastParams", "OverlapParams", "Random",
    "Instance", "Vector2", "BrickColor", "PhysicalProperties", "TweenInfo", "Ray", "NumberRange", "NumberSequence",
    "ColorSequence", "NumberSequenceKeypoint", "ColorSequenceKeypoint", "Rect", "Font",
    "task", "string", "table", "math", "bit32", "buffer", "utf8", "os", "coroutine", "debug" } do
    local ok, found = pcall(function() return ({
        Vector3 = Vector3, CFrame = CFrame, Color3 = Color3, UDim = UDim, UDim2 = UDim2, Region3 = Region3,
        RaycastParams = RaycastParams, OverlapParams = OverlapParams, Random = Random, Instance = Instance,
        Vector2 = Vector2, NumberRange = NumberRange, NumberSequence = NumberSequence, Rect = Rect, Font = Font,
        ColorSequence = ColorSequence, NumberSequenceKeypoint = NumberSequenceKeypoint,
        ColorSequenceKeypoint = ColorSequenceKeypoint, task = task, string = string, table = table, math = math, bit32 = bit32,
        buffer = buffer, utf8 = utf8, os = os, coroutine = coroutine, debug = debug })[name] end)
    if ok and type(found) == "table" then
        for key, f in found do
            if type(f) == "function" then
                task.spawn(call, f)
            end
        end
    end
end
for _, f in { tostring, tonumber, type, typeof, select, rawget, rawset, rawequal, rawlen, next, pairs, ipairs, unpack, require,
    setmetatable, getmetatable, assert, pcall, xpcall, tick, time, wait, warn, spawn or print, delay or print } do
    if f then task.spawn(call, f) end
end
for _, thing in values do
    if type(thing) ~= "table" and type(thing) ~= "string" then
        for _, name in { "X", "Position", "Magnitude", "Name", "new", "Value", "Connected", 1, 0 / 0, {}, "__index", "Unit",
            "Lerp", "Dot", "Inverse", "ToHex", "NextInteger", "NextNumber", "Shuffle", "Clone", "Connect", "FuzzyEq", "Cross",
            "ToWorldSpace", "PointToObjectSpace", "VectorToWorldSpace", "GetComponents", "components", "ToEulerAnglesXYZ",
            "ToAxisAngle", "Orthonormalize", "AddToFilter", "GetEnumItems", "FromName", "FromValue", "ExpandToGrid" } do
            local ok, found = try(read, thing, name)
            try(write, thing, name, any())
            local method = function(self, ...) return self[name](self, ...) end
            task.spawn(call, method, thing)
        end
        for _, other in values do
            try(function() return thing + other end)
            try(function() return thing - other end)
            try(function() return thing * other end)
            try(function() return thing / other end)
            try(function() return thing // other end)
            try(function() return thing % other end)
            try(function() return thing ^ other end)
            try(function() return thing == other, thing < other end)
            try(function() return thing .. other end)
            try(function() return -thing, #thing end)
            try(function() return tostring(thing) end)
        end
    end
end
task.wait()
print("tries", tries)
