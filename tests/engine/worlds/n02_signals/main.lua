-- N2: signals: order of handlers, disconnecting and connecting while an event fires, Wait, Once.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local RunService = game:GetService("RunService")

local folder = Instance.new("Folder")
folder.Parent = Workspace
local signal = folder.AttributeChanged
Check.equal("an event is the same signal each time", folder.AttributeChanged, signal)

local order = {}
local connections = {}
for index = 1, 3 do
	connections[index] = signal:Connect(function(name)
		table.insert(order, index)
		if index == 1 and connections[2].Connected then
			connections[2]:Disconnect()
			signal:Connect(function()
				table.insert(order, "new")
			end)
		end
	end)
end
Check.equal("Connected is true", connections[2].Connected, true)
folder:SetAttribute("a", 1)
Check.list("a disconnected handler is skipped, a new one waits", order, { 1, 3 })
Check.equal("Connected is false", connections[2].Connected, false)
connections[2]:Disconnect()
order = {}
folder:SetAttribute("a", 2)
Check.list("the new handler runs for the next event, last", order, { 1, 3, "new" })
for _, connection in connections do
	connection:Disconnect()
end

local once = 0
folder.ChildAdded:Once(function(child)
	once += 1
	Instance.new("Folder", nil).Parent = nil
end)
Instance.new("Folder").Parent = folder
Instance.new("Folder").Parent = folder
Check.equal("Once runs for one event", once, 1)

-- handlers are coroutines of their own: one that waits does not hold up the next
local ran = {}
folder.ChildRemoved:Connect(function()
	task.wait(0.1)
	table.insert(ran, "slow")
end)
folder.ChildRemoved:Connect(function()
	table.insert(ran, "fast")
end)
folder:FindFirstChild("Folder").Parent = nil
Check.list("a handler that waits does not hold up others", ran, { "fast" })

-- nested events run at once
local nested = {}
folder:GetAttributeChangedSignal("outer"):Connect(function()
	table.insert(nested, "outer begins")
	folder:SetAttribute("inner", 1)
	table.insert(nested, "outer ends")
end)
folder:GetAttributeChangedSignal("inner"):Connect(function()
	table.insert(nested, "inner")
end)
folder:SetAttribute("outer", 1)
Check.list("an event fired by a handler runs within it", nested, { "outer begins", "inner", "outer ends" })

-- Wait resumes within the firing, with the arguments
local resumedAt, firedAt, got
task.spawn(function()
	got = { folder.AttributeChanged:Wait() }
	resumedAt = tick()
end)
local stepped = false
RunService.Stepped:Connect(function()
	if not stepped then
		stepped = true
		firedAt = tick()
		folder:SetAttribute("late", true)
		Check.equal("Wait resumes inside the firing", resumedAt, firedAt)
	end
end)

task.spawn(function()
	task.wait(0.5)
	Check.equal("Wait returns the arguments", got[1], "late")
	Check.list("the slow handler ended", ran, { "fast", "slow" })
	Check.done()
end)
