-- N8: instances: names, children, attributes, tags, classes, waiting for children.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local model = Instance.new("Model")
Check.equal("the default name is the class", model.Name, "Model")
Check.equal("tostring is the name", tostring(model), "Model")
Check.equal("typeof", typeof(model), "Instance")
Check.equal("ClassName", model.ClassName, "Model")
Check.fails("an unknown class", "Unknown class 'Spaceship'", Instance.new, "Spaceship")
Check.fails("an unknown member", "is not a valid member of Model", function()
	model.Wings = 2
end)
Check.equal("an unknown name reads as nil", model.Wings, nil)

local first, second = Instance.new("Part"), Instance.new("Part")
first.Name, second.Name = "Wing", "Wing"
first.Parent, second.Parent = model, model
Check.equal("indexing finds a child", model.Wing, first)
Check.equal("FindFirstChild finds the first", model:FindFirstChild("Wing"), first)
first.Name = "Tail"
Check.equal("a renamed child is found by its new name", model.Tail, first)
Check.equal("and the other by the old one", model.Wing, second)
Check.list("GetChildren is in order of arrival", model:GetChildren(), { "Tail", "Wing" })
Check.equal("a method is found before a child", type(model.GetChildren), "function")

local deep = Instance.new("Folder")
deep.Name = "Deep"
deep.Parent = first
local deeper = Instance.new("IntValue")
deeper.Name = "Wing"
deeper.Parent = deep
Check.equal("FindFirstChild(name, true) is depth first", model:FindFirstChild("Wing", true), deeper)
Check.equal("FindFirstChild does not go deep by default", model:FindFirstChild("Deep"), nil)
Check.equal("FindFirstChildOfClass wants the class", first:FindFirstChildOfClass("Folder"), deep)
Check.equal("FindFirstChildOfClass takes no subclass", model:FindFirstChildOfClass("BasePart"), nil)
Check.equal("FindFirstChildWhichIsA takes subclasses", model:FindFirstChildWhichIsA("BasePart"), first)
Check.list("GetDescendants is depth first", model:GetDescendants(), { "Tail", "Deep", "Wing", "Wing" })
Check.equal("IsDescendantOf", deeper:IsDescendantOf(model), true)
Check.equal("not of itself", model:IsDescendantOf(model), false)

local classes = {
	Part = { "BasePart", "Instance" },
	ScreenGui = { "LayerCollector", "GuiBase2d", "Instance" },
	Frame = { "GuiObject", "GuiBase2d" },
	TextLabel = { "GuiObject", "GuiBase2d" },
	TextButton = { "GuiButton", "GuiObject", "GuiBase2d" },
	ImageButton = { "GuiButton" },
	Weld = { "Constraint" },
	UICorner = { "UIComponent" },
}
for class, bases in classes do
	local instance = Instance.new(class)
	Check.equal(class .. " IsA itself", instance:IsA(class), true)
	for _, base in bases do
		Check.equal(class .. " IsA " .. base, instance:IsA(base), true)
	end
	Check.equal(class .. " is no MeshPart", instance:IsA("MeshPart"), false)
end

-- attributes
local changes = {}
model.AttributeChanged:Connect(function(name)
	table.insert(changes, "any " .. name)
end)
model:GetAttributeChangedSignal("Speed"):Connect(function(...)
	table.insert(changes, "own " .. select("#", ...))
end)
model:SetAttribute("Speed", 5)
model:SetAttribute("Speed", 5)
Check.list("AttributeChanged, then its own signal, also for an equal value", changes, { "any Speed", "own 0", "any Speed", "own 0" })
model:SetAttribute("Speed", nil)
Check.equal("nil removes an attribute", next(model:GetAttributes()), nil)
local list = { 1, { 2, "x" }, Vector3.new(1, 2, 3), extra = true }
model:SetAttribute("List", list)
local copy = model:GetAttribute("List")
Check.that("a table is a copy", copy ~= list and model:GetAttribute("List") ~= copy)
Check.equal("the array part is kept", copy[2][2], "x")
Check.equal("other keys are not", copy.extra, nil)
for what, value in { ["function"] = print, instance = model, params = RaycastParams.new() } do
	Check.fails(what .. " is no attribute", "Unsupported attribute type", model.SetAttribute, model, "Bad", value)
end

-- tags
model:AddTag("b")
model:AddTag("a")
model:AddTag("b")
Check.list("tags are in order of adding", model:GetTags(), { "b", "a" })
model:RemoveTag("b")
Check.equal("HasTag", model:HasTag("b"), false)

-- properties
local names = {}
first:GetPropertyChangedSignal("Transparency"):Connect(function()
	table.insert(names, first.Transparency)
end)
first.Transparency = 0.5
first.Transparency = 0.5
first.Transparency = 7
Check.list("a changed property fires once for each change; 0 to 1", names, { 0.5, 1 })
Check.fails("a wrong type names the property", "Size", function()
	first.Size = 5
end)
Check.fails("a read-only property", "read-only", function()
	first.ClassName = "X"
end)

-- waiting for children
task.spawn(function()
	Check.equal("WaitForChild returns an existing child at once", model:WaitForChild("Tail"), first)
	local start = tick()
	Check.equal("WaitForChild gives nil after its time", model:WaitForChild("Never", 0.5), nil)
	Check.near("after 0.5 s", tick() - start, 0.5, 1e-6)
	local late = model:WaitForChild("Late")
	Check.equal("WaitForChild finds a later child", late.ClassName, "Folder")
	Check.done()
end)
task.delay(1, function()
	local late = Instance.new("Folder")
	late.Name = "Late"
	late.Parent = model
end)
