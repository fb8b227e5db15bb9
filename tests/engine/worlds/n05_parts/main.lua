-- N5: parts: anchored and falling ones, sensors, shapes, velocities, impulses, pivots, welds.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local function part(properties)
	local made = Instance.new("Part")
	for name, value in properties do
		made[name] = value
	end
	made.Parent = Workspace
	return made
end
local plain = Instance.new("Part")
Check.equal("default size", plain.Size, Vector3.new(4, 1, 2))
Check.equal("default colour", plain.Color, Color3.new(0.6, 0.6, 0.6))
Check.equal("default material", plain.Material, Enum.Material.Plastic)
for name, value in { CanCollide = true, CanTouch = true, CanQuery = true, Anchored = false, Transparency = 0, CollisionGroup = "Default" } do
	Check.equal("default " .. name, plain[name], value)
end

part({ Anchored = true, Size = Vector3.new(200, 1, 200), Position = Vector3.new(0, -0.5, 0) })
local falling = part({ Size = Vector3.new(2, 2, 2), Position = Vector3.new(0, 10, 0) })
local ghost = part({ Size = Vector3.new(2, 2, 2), Position = Vector3.new(8, 10, 0), CanCollide = false })
local hanging = part({ Size = Vector3.new(2, 2, 2), Position = Vector3.new(16, 10, 0), Anchored = true })
local ball = part({ Shape = Enum.PartType.Ball, Size = Vector3.new(2, 2, 2), Position = Vector3.new(24, 10, 0) })
local cylinder = part({ Shape = Enum.PartType.Cylinder, Size = Vector3.new(2, 4, 2), Position = Vector3.new(32, 10, 0) })
local outside = Instance.new("Part")
outside.Position = Vector3.new(0, 10, 30)

-- position and CFrame are one value
local turned = part({ Anchored = true, CFrame = CFrame.new(0, 5, -20) * CFrame.Angles(0, math.rad(90), 0) })
turned.Position = Vector3.new(1, 5, -20)
Check.near("setting Position keeps the rotation", turned.CFrame.LookVector, Vector3.new(-1, 0, 0), 1e-5)
Check.equal("and CFrame shows the position", turned.CFrame.Position, Vector3.new(1, 5, -20))

task.spawn(function()
	task.wait(0.25)
	Check.near("a body falls by gravity", falling.Position.Y, 10 - 0.5 * 196.2 * 0.25 ^ 2, 0.6)
	task.wait(2)
	Check.near("it comes to rest", falling.Position.Y, 1, 0.02)
	Check.that("a sensor falls through", ghost.Position.Y < -20, tostring(ghost.Position.Y))
	Check.equal("an anchored one stays", hanging.Position, Vector3.new(16, 10, 0))
	Check.near("a ball has the radius X / 2", ball.Position.Y, 1, 0.05)
	Check.near("a cylinder stands along Y", cylinder.Position.Y, 2, 0.05)
	Check.equal("outside of Workspace nothing moves", outside.Position, Vector3.new(0, 10, 30))

	falling.Position = Vector3.new(0, 30, 0)
	Check.equal("a written position reads back", falling.Position, Vector3.new(0, 30, 0))
	task.wait()
	task.wait()
	Check.that("and holds", falling.Position.Y > 29.5)
	falling.Velocity = Vector3.new(0, 0, 20)
	task.wait(0.25)
	Check.near("a written velocity moves it", falling.Position.Z, 5, 0.7)
	Check.near("AssemblyLinearVelocity is the same", falling.AssemblyLinearVelocity.Z, falling.Velocity.Z, 1e-4)
	falling.Anchored = true
	local held = falling.Position
	task.wait(0.2)
	Check.equal("anchoring holds it", falling.Position, held)
	falling.Anchored = false
	task.wait(0.2)
	Check.that("releasing lets it fall", falling.Position.Y < held.Y)

	ball.Position = Vector3.new(60, 40, 0)
	task.wait(0.1)
	ball:ApplyImpulse(Vector3.new(ball:GetMass() * 12, 0, 0))
	task.wait()
	Check.near("an impulse changes the velocity by impulse / mass", ball.Velocity.X, 12, 0.01)

	falling.Size = Vector3.new(6, 6, 6)
	falling.Position = Vector3.new(-60, 20, 0)
	task.wait(2)
	Check.near("a new size rebuilds the collider", falling.Position.Y, 3, 0.05)

	-- models
	local model = Instance.new("Model")
	local body = Instance.new("Part")
	local wheel = Instance.new("Part")
	body.Anchored, wheel.Anchored = true, true
	body.Position, wheel.Position = Vector3.new(0, 50, 0), Vector3.new(3, 50, 0)
	body.Parent, wheel.Parent = model, model
	model.Parent = Workspace
	model:SetPrimaryPartCFrame(CFrame.new(0, 60, 0))
	Check.equal("without PrimaryPart nothing moves", wheel.Position, Vector3.new(3, 50, 0))
	model.PrimaryPart = body
	model:SetPrimaryPartCFrame(CFrame.new(0, 60, 0) * CFrame.Angles(0, math.rad(90), 0))
	Check.near("all parts move rigidly", wheel.Position, Vector3.new(0, 60, -3), 1e-4)
	model:PivotTo(CFrame.new(10, 60, 0))
	Check.near("PivotTo too", wheel.Position, Vector3.new(13, 60, 0), 1e-4)

	-- welds: Part1.CFrame = Part0.CFrame * C0 * C1:Inverse()
	local cargo = part({ CanCollide = false, Size = Vector3.new(1, 1, 1), Position = Vector3.new(0, 90, 0) })
	local weld = Instance.new("Weld")
	weld.Part0, weld.Part1 = body, cargo
	weld.C0 = CFrame.new(0, 2, 0)
	weld.C1 = CFrame.Angles(0, math.rad(90), 0)
	weld.Parent = body
	task.wait()
	task.wait()
	local expected = body.CFrame * weld.C0 * weld.C1:Inverse()
	Check.near("a weld holds the position", cargo.Position, expected.Position, 1e-4)
	Check.near("and the rotation", cargo.CFrame.LookVector, expected.LookVector, 1e-4)
	body.CFrame = CFrame.new(0, 70, 0)
	task.wait()
	task.wait()
	Check.near("it follows", cargo.Position, Vector3.new(0, 72, 0), 1e-4)
	weld.Enabled = false
	body.CFrame = CFrame.new(0, 75, 0)
	task.wait()
	task.wait()
	Check.that("a disabled weld lets go", math.abs(cargo.Position.Y - 77) > 1)
	Check.done()
end)
