-- N7: rays and overlaps.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local function part(name, position, size, properties)
	local made = Instance.new("Part")
	made.Name = name
	made.Anchored = true
	made.Position = position
	made.Size = size or Vector3.new(2, 2, 2)
	for key, value in properties or {} do
		made[key] = value
	end
	made.Parent = Workspace
	return made
end
local near = part("near", Vector3.new(10, 0, 0), nil, { Transparency = 1 })
local far = part("far", Vector3.new(20, 0, 0), nil, { CanCollide = false, Material = Enum.Material.Neon })
local hidden = part("hidden", Vector3.new(5, 0, 0), nil, { CanQuery = false })
local origin, along = Vector3.new(0, 0, 0), Vector3.new(30, 0, 0)

local hit = Workspace:Raycast(origin, along)
Check.equal("invisible parts are hit, unqueryable ones are not", hit.Instance, near)
Check.near("where", hit.Position, Vector3.new(9, 0, 0), 1e-4)
Check.near("normal", hit.Normal, Vector3.new(-1, 0, 0), 1e-4)
Check.near("distance", hit.Distance, 9, 1e-4)
Check.equal("material", hit.Material, Enum.Material.Plastic)
Check.equal("the length is the range", Workspace:Raycast(origin, Vector3.new(8.9, 0, 0)), nil)
Check.equal("no direction, no hit", Workspace:Raycast(origin, Vector3.new(0, 0, 0)), nil)
hit = Workspace:Raycast(Vector3.new(10, 0, 0), Vector3.new(5, 0, 0))
Check.equal("from inside: the far face", hit.Instance, near)
Check.near("at its far side", hit.Position, Vector3.new(11, 0, 0), 1e-4)
Check.near("outward", hit.Normal, Vector3.new(1, 0, 0), 1e-4)

local params = RaycastParams.new()
Check.equal("the default is Exclude", params.FilterType, Enum.RaycastFilterType.Exclude)
params.FilterDescendantsInstances = { near }
Check.equal("excluded", Workspace:Raycast(origin, along, params).Instance, far)
params.RespectCanCollide = true
Check.equal("RespectCanCollide", Workspace:Raycast(origin, along, params), nil)
params = RaycastParams.new()
params.FilterType = Enum.RaycastFilterType.Whitelist
local folder = Instance.new("Folder")
folder.Parent = Workspace
params.FilterDescendantsInstances = { folder }
Check.equal("only what is included", Workspace:Raycast(origin, along, params), nil)
far.Parent = folder
Check.equal("and all below it", Workspace:Raycast(origin, along, params).Instance, far)

local function names(list)
	local found = {}
	for _, each in list do
		table.insert(found, each.Name)
	end
	return found
end
part("x", Vector3.new(0, 50, 0))
part("y", Vector3.new(3, 50, 0))
part("z", Vector3.new(9, 50, 0), nil, { Shape = Enum.PartType.Ball })
Check.list("a box, in tree order", names(Workspace:GetPartBoundsInBox(CFrame.new(1, 50, 0), Vector3.new(4, 4, 4))), { "x", "y" })
Check.list("a turned box", names(Workspace:GetPartBoundsInBox(CFrame.new(6, 50, 0) * CFrame.Angles(0, math.rad(45), 0), Vector3.new(4, 1, 4))), { "y", "z" })
Check.list("a sphere", names(Workspace:GetPartBoundsInRadius(Vector3.new(9, 50, 0), 4.9)), { "z" })
Check.list("a larger one", names(Workspace:GetPartBoundsInRadius(Vector3.new(9, 50, 0), 5.1)), { "y", "z" })
local overlap = OverlapParams.new()
overlap.MaxParts = 1
Check.list("MaxParts", names(Workspace:GetPartBoundsInRadius(Vector3.new(5, 50, 0), 9, overlap)), { "x" })
local probe = part("probe", Vector3.new(7.25, 51.75, 0))
Check.list("GetPartsInPart uses the true shapes, without the part", names(Workspace:GetPartsInPart(probe)), {})
probe.Position = Vector3.new(8, 50, 0)
Check.list("and finds what overlaps", names(Workspace:GetPartsInPart(probe)), { "z" })
Check.done()
