local dice = Random.new(SEED)
local part, model = Instance.new("Part", workspace), Instance.new("Model", workspace)
local loose, gone = Instance.new("Part"), Instance.new("Folder", workspace)
gone:Destroy()
local deep = {}
for _ = 1, 300 do deep = { deep } end
local circle = {}
circle.circle = circle
local values = {
    0, 1, -1, 2.5, -0.0, 1e9, 2 ^ 53, -2 ^ 31, 1e39, 1e308, 0 / 0, 1 / 0, -1 / 0,
    "", "x", "Name", "0", "1e999", "\0", "\xff\xfe", "%", "[", string.rep("(", 40), string.rep("a", 3000),
    true, false, {}, { 1, 2, 3 }, { 1, nil, 3 }, { a = 1 }, { part }, deep, circle,
    function(...) return ... end, error, print, coroutine.create(function() coroutine.yield() end),
    setmetatable({}, { __index = error, __tostring = error, __len = error, __call = error }),
    newproxy and newproxy(true) or false, buffer.create(4),
    Vector3.new(1, 2, 3), Vector3.zero, Vector3.new(0 / 0, 1 / 0, 0), Vector3.new(1e30, -1e30, 1e30),
    CFrame.new(), CFrame.new(0 / 0, 0, 0), CFrame.Angles(1, 2, 3), CFrame.new(1e30, 1e30, 1e30),
    Color3.new(1, 2, 3), UDim.new(1, 2), UDim2.new(1, 2, 3, 4),
    Vector2.new(0 / 0, 1 / 0), Rect.new(1, 2, 3, 4), NumberRange.new(-1 / 0, 1), NumberSequence.new(1 / 0),
    Font.fromName("Arial"), ColorSequence.new(Color3.new()), NumberSequenceKeypoint.new(0, 1), ColorSequenceKeypoint.new(0 / 0, Color3.new()),
    Enum.Material.Neon, Enum.PartType.Ball, Enum.Material, Enum.KeyCode.Space, Enum,
    RaycastParams.new(), OverlapParams.new(), Random.new(1),
    Region3.new(Vector3.new(-4, -4, -4), Vector3.new(4, 4, 4)),
    part, model, loose, gone, workspace, game, game:GetService("Players"),
    part.Touched, part.Touched:Connect(function() end),
}
local count = #values
local function any()
    local at = dice:NextInteger(1, count + 3)
    return values[at]
end
local tries = 0
local function try(f, ...)
    tries += 1
    return pcall(f, ...)
end
local function call(f, ...)
    local self = ...
    for _ = 1, CALLS do
        local n = dice:NextInteger(0, 4)
        local a, b, c, d = any(), any(), any(), any()
        if select("#", ...) > 0 then
            if n == 0 then try(f, self) elseif n == 1 then try(f, self, a)
            elseif n == 2 then try(f, self, a, b) else try(f, self, a, b, c) end
        elseif n == 0 then try(f) elseif n == 1 then try(f, a)
        elseif n == 2 then try(f, a, b) elseif n == 3 then try(f, a, b, c) else try(f, a, b, c, d) end
    end
end
local function write(thing, name, value)
    thing[name] = value
end
local function read(thing, name)
    return thing[name]
end
local function make(class)
    local ok, made = pcall(Instance.new, class)
    if ok then
        made.Parent = workspace
        return made
    end
    local player = game:GetService("Players"):GetPlayers()[1]
    if class == "DataModel" then
        return game
    elseif class == "DataStore" then
        return game:GetService("DataStoreService"):GetDataStore("x")
    elseif class == "OrderedDataStore" then
        return game:GetService("DataStoreService"):GetOrderedDataStore("x")
    elseif class == "Player" then
        return player
    elseif class == "PlayerGui" then
        return player and player.PlayerGui
    elseif class == "AnimationTrack" then
        local animation, humanoid = Instance.new("Animation"), Instance.new("Humanoid", model)
        animation.AnimationId = "local://dance"
        return humanoid:LoadAnimation(animation)
    elseif class == "Terrain" then
        return workspace.Terrain
    end
    return game:GetService(class)
end
