-- Body movers: velocities, forces and goals of unanchored parts.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
Workspace.Gravity = 0

local function part(x)
	local made = Instance.new("Part")
	made.Size = Vector3.new(2, 2, 2)
	made.Position = Vector3.new(x, 50, 0)
	made.Parent = Workspace
	return made
end
local function give(owner, class, properties)
	local made = Instance.new(class)
	for name, value in properties do
		made[name] = value
	end
	made.Parent = owner
	return made
end
local function attachment(owner)
	return give(owner, "Attachment", {})
end

local pushed = part(0)
give(pushed, "BodyVelocity", { Velocity = Vector3.new(0, 0, 10), MaxForce = Vector3.new(1e6, 1e6, 1e6) })
local forced = part(10)
give(forced, "BodyForce", { Force = Vector3.new(0, 0, 5 * forced:GetMass()) })
local spun = part(20)
give(spun, "BodyAngularVelocity", { AngularVelocity = Vector3.new(0, 2, 0), MaxTorque = Vector3.new(1e6, 1e6, 1e6) })
local vector = part(30)
give(vector, "VectorForce", { Force = Vector3.new(0, 0, 5 * vector:GetMass()), Attachment0 = attachment(vector), RelativeTo = Enum.ActuatorRelativeTo.World })
local aligned = part(40)
give(aligned, "AlignPosition", { Attachment0 = attachment(aligned), Position = Vector3.new(40, 50, 12), Mode = Enum.PositionAlignmentMode.OneAttachment })
local turned = part(50)
give(turned, "AlignOrientation", { Attachment0 = attachment(turned), CFrame = CFrame.Angles(0, math.rad(90), 0), Mode = Enum.OrientationAlignmentMode.OneAttachment })

task.spawn(function()
	task.wait(2)
	Check.near("BodyVelocity reaches its velocity", pushed.Velocity.Z, 10, 0.5)
	Check.near("BodyForce accelerates by force / mass", forced.Velocity.Z, 10, 0.5)
	Check.near("BodyAngularVelocity turns", spun.AssemblyAngularVelocity.Y, 2, 0.2)
	Check.near("VectorForce accelerates", vector.Velocity.Z, 10, 0.5)
	Check.near("AlignPosition arrives", aligned.Position.Z, 12, 0.5)
	Check.near("AlignOrientation turns", turned.CFrame.LookVector, Vector3.new(-1, 0, 0), 0.1)
	Check.done()
end)
