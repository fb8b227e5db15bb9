-- N8: the order of events when instances move, are copied and are destroyed.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local order = {}
local function note(instance, event)
	instance[event]:Connect(function(other)
		table.insert(order, instance.Name .. "." .. event .. (if other then "(" .. tostring(other) .. ")" else ""))
	end)
end
local function named(class, name, parent)
	local made = Instance.new(class)
	made.Name = name
	made.Parent = parent
	return made
end

local a, b = named("Folder", "A", Workspace), named("Folder", "B", Workspace)
local child = named("Folder", "child", a)
note(a, "ChildRemoved")
note(b, "ChildAdded")
child:GetPropertyChangedSignal("Parent"):Connect(function()
	table.insert(order, "child.Parent")
end)
child.Parent = b
Check.list("ChildRemoved, ChildAdded, then the property", order, { "A.ChildRemoved(child)", "B.ChildAdded(child)", "child.Parent" })
child.Parent = b
Check.equal("setting the same parent does nothing", #order, 3)
Check.fails("no circles", "circular reference", function()
	b.Parent = child
end)

-- destroy: Destroying of it, then of its children, each unparented after its own children
order = {}
local root = named("Folder", "root", Workspace)
local one, two = named("Folder", "one", root), named("Folder", "two", root)
local inner = named("Folder", "inner", one)
for _, instance in { root, one, inner, two } do
	note(instance, "Destroying")
	note(instance, "ChildRemoved")
end
root:Destroy()
Check.list("Destroying goes down, unparenting comes back up", order, {
	"root.Destroying", "one.Destroying", "inner.Destroying", "one.ChildRemoved(inner)", "root.ChildRemoved(one)",
	"two.Destroying", "root.ChildRemoved(two)",
})
Check.equal("a destroyed instance has no parent", one.Parent, nil)
root:Destroy()
Check.equal("once only", #order, 7)
Check.fails("it cannot come back", "locked", function()
	root.Parent = Workspace
end)

-- clone
local model = named("Model", "Car", nil)
local body, wheel = named("Part", "Body", model), named("Part", "Wheel", model)
body.Size = Vector3.new(1, 2, 3)
body.Color = Color3.fromRGB(10, 20, 30)
body:SetAttribute("Fuel", { 1, 2 })
body:AddTag("Steel")
model.PrimaryPart = body
local weld = named("Weld", "Axle", model)
weld.Part0, weld.Part1 = body, wheel
local fired = 0
body:GetPropertyChangedSignal("Transparency"):Connect(function()
	fired += 1
end)
local copy = model:Clone()
Check.equal("a clone has no parent", copy.Parent, nil)
Check.list("children are copied in order", copy:GetChildren(), { "Body", "Wheel", "Axle" })
Check.equal("properties", copy.Body.Size, Vector3.new(1, 2, 3))
Check.equal("colours", copy.Body.Color, Color3.fromRGB(10, 20, 30))
Check.equal("attributes", copy.Body:GetAttribute("Fuel")[2], 2)
Check.equal("tags", copy.Body:HasTag("Steel"), true)
Check.equal("PrimaryPart is the copy", copy.PrimaryPart, copy.Body)
Check.equal("Part0 is the copy", copy.Axle.Part0, copy.Body)
Check.equal("Part1 is the copy", copy.Axle.Part1, copy.Wheel)
copy.Body.Transparency = 1
Check.equal("connections stay with the original", fired, 0)
copy.Parent = Workspace
model:Destroy()
Check.equal("the copy lives on", copy.Body.Parent, copy)
copy:ClearAllChildren()
Check.equal("ClearAllChildren", #copy:GetChildren(), 0)
Check.that("ids grow", tonumber(copy:GetDebugId()) > tonumber(a:GetDebugId()))
Check.done()
