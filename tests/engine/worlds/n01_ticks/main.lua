-- N1: the frame: fixed steps, the order of the phases, what scripts see of new and moved parts.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")

Check.equal("main runs before tick 0: time is 0", tick(), 0)

local part = Instance.new("Part")
part.Anchored = true
part.Position = Vector3.new(0, 5, 0)
part.Size = Vector3.new(2, 2, 2)
part.Parent = Workspace
local hit = Workspace:Raycast(Vector3.new(0, 20, 0), Vector3.new(0, -40, 0))
Check.equal("a ray cast in main sees a new part", hit and hit.Instance, part)
part.Position = Vector3.new(30, 5, 0)
Check.equal("a moved part has left at once", Workspace:Raycast(Vector3.new(0, 20, 0), Vector3.new(0, -40, 0)), nil)
hit = Workspace:Raycast(Vector3.new(30, 20, 0), Vector3.new(0, -40, 0))
Check.equal("a moved part is there at once", hit and hit.Instance, part)

local order = {}
local function note(what)
	return function()
		table.insert(order, what)
	end
end
RunService.Heartbeat:Connect(note("heartbeat"))
RunService.Stepped:Connect(note("stepped"))

local ticks, steps, beats = 0, {}, {}
RunService.Stepped:Connect(function(time, dt)
	table.insert(steps, { time = time, dt = dt, tick = tick() })
end)
RunService.Heartbeat:Connect(function(dt)
	ticks += 1
	table.insert(beats, dt)
	if ticks == 1 then
		order = {}
		task.defer(note("due"))
	elseif ticks == 2 then
		Check.list("threads, then Stepped, then Heartbeat", order, { "due", "stepped", "heartbeat" })
	elseif ticks == 60 then
		for index = 1, 60 do
			Check.equal("dt is 1/60 in every tick", beats[index], 1 / 60)
			Check.near("Stepped gets the seconds since the start", steps[index].time, steps[index].tick, 1e-9)
		end
		Check.near("60 ticks are a second", steps[60].time - steps[1].time, 59 / 60, 1e-9)
		Check.equal("Stepped gets dt", steps[1].dt, 1 / 60)
		Check.done()
	end
end)
