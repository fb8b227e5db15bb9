-- N13: HttpService, value objects, Debris, services by name.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Http = game:GetService("HttpService")

local function encodes(value, text)
	Check.equal("JSONEncode " .. text, Http:JSONEncode(value), text)
end
encodes({ b = 1, a = { true, "x" } }, '{"a":[true,"x"],"b":1}')
encodes({}, "{}")
encodes({ 1, nil, 3 }, "[1,null,3]")
encodes({ [1.5] = 2 }, '{"1.5":2}')
encodes({ 0 / 0, math.huge, 2.5, 3.0 }, "[null,null,2.5,3]")
encodes({ f = print, i = Workspace }, '{"f":null,"i":null}')
encodes("ä\n", '"ä\\n"')
local read = Http:JSONDecode('{"list": [1, null, "x"], "empty": null, "deep": {"on": true}}')
Check.equal("arrays count from 1", read.list[1], 1)
Check.equal("null is nil", read.empty, nil)
Check.equal("null keeps the place of the rest", read.list[3], "x")
Check.equal("objects", read.deep.on, true)
Check.equal("malformed text is nil", Http:JSONDecode("{"), nil)

Check.equal("an unknown service is nil", game:GetService("FlightService"), nil)
for _, name in { "Workspace", "Players", "RunService", "HttpService", "Debris", "ReplicatedStorage", "ServerStorage" } do
	Check.equal("game." .. name, game[name], game:GetService(name))
end
Check.equal("workspace and Workspace", workspace, game.Workspace)
Check.equal("RunService:IsServer", game:GetService("RunService"):IsServer(), true)
Check.equal("RunService:IsClient", game:GetService("RunService"):IsClient(), false)

local seen = {}
for class, value in { IntValue = 5, NumberValue = 2.5, BoolValue = true, StringValue = "s", ObjectValue = Workspace, CFrameValue = CFrame.new(1, 2, 3) } do
	local object = Instance.new(class)
	object.Changed:Connect(function(new)
		seen[class] = new
	end)
	object.Value = value
	object.Value = value
	Check.equal(class .. " holds its value", object.Value, value)
	Check.equal(class .. ".Changed gets the value", seen[class], value)
end

local part = Instance.new("Part")
part.Anchored = true
part.Parent = Workspace
game:GetService("Debris"):AddItem(part, 0.5)
task.spawn(function()
	task.wait(0.4)
	Check.equal("Debris waits", part.Parent, Workspace)
	task.wait(0.2)
	Check.equal("Debris destroys", part.Parent, nil)
	Check.done()
end)
