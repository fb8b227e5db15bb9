-- N13 and section 6: value objects, Debris, sounds, RunService, services and what they are found by.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Debris = game:GetService("Debris")
local RunService = game:GetService("RunService")

for class, pair in {
	IntValue = { 0, 3 },
	NumberValue = { 0, 2.5 },
	BoolValue = { false, true },
	StringValue = { "", "text" },
	CFrameValue = { CFrame.new(), CFrame.new(1, 2, 3) },
} do
	local value = Instance.new(class)
	Check.equal(class .. " begins with", value.Value, pair[1])
	local changes = {}
	value.Changed:Connect(function(new)
		table.insert(changes, new)
	end)
	value.Value = pair[2]
	value.Value = pair[2]
	Check.equal(class .. " keeps its value", value.Value, pair[2])
	Check.equal(class .. ".Changed fires once with it", #changes, 1)
	Check.equal("the new value", changes[1], pair[2])
end
local object = Instance.new("ObjectValue")
Check.equal("ObjectValue begins empty", object.Value, nil)
object.Value = Workspace
Check.equal("and refers to instances", object.Value, Workspace)

for _, name in {
	"Workspace", "Players", "RunService", "ReplicatedStorage", "ServerScriptService", "ServerStorage", "AgentInputService",
	"PhysicsService", "RemoteEventService", "HttpService", "DataStoreService", "Debris",
} do
	local service = game:GetService(name)
	Check.that(name .. " is a service", service ~= nil and service.ClassName == name)
	Check.equal("game." .. name, game[name], service)
	Check.equal(name .. " is below game", service.Parent, game)
end
Check.equal("unknown services are nil", game:GetService("Nonsense"), nil)
Check.equal("the script tree is a server", RunService:IsServer(), true)
Check.equal("and no client", RunService:IsClient(), false)

local short, long = Instance.new("Part"), Instance.new("Part")
short.Parent, long.Parent = Workspace, Workspace
Debris:AddItem(short, 0.1)
Debris:AddItem(long, 0.5)
task.delay(0.3, function()
	Check.equal("Debris destroys in time", short.Parent, nil)
	Check.equal("and not before", long.Parent, Workspace)
end)

local sound = Instance.new("Sound")
sound.SoundId = "asset://bell.ogg"
sound.Volume = 0.5
sound.Looped = true
sound.Parent = long
sound:Play()
Check.equal("a sound plays", sound.Playing, true)

local camera = Workspace.CurrentCamera
Check.that("a camera may be absent", camera == nil or camera.ClassName == "Camera")
task.delay(1, function()
	Check.equal("later it destroys the other", long.Parent, nil)
	Check.done()
end)
