-- 150 parts: 100 that stand, 15 that move, 35 crystals. In every tick each player's distance to each
-- crystal is tested: 280 differences and magnitudes, 2,000 properties read, 420 methods called.

local Players = game:GetService("Players")
local RunService = game:GetService("RunService")

local function part(name, position, size)
	local made = Instance.new("Part")
	made.Name = name
	made.Anchored = true
	made.Size = size
	made.Position = position
	made.Parent = Workspace
	return made
end

part("Floor", Vector3.new(0, -0.5, 0), Vector3.new(400, 1, 400))
for index = 1, 99 do
	local angle = index * 2.39996
	local radius = 25 + index
	part("Block", Vector3.new(math.cos(angle) * radius, 2, math.sin(angle) * radius), Vector3.new(4, 4, 4))
end

local movers = {}
for index = 1, 15 do
	local home = Vector3.new(index * 12 - 96, 8, -60)
	movers[index] = { part = part("Platform", home, Vector3.new(8, 1, 8)), home = home, phase = index }
end

local crystals = {}
for index = 1, 35 do
	local crystal = part("Crystal", Vector3.new((index % 7) * 12 - 36, 3, math.floor(index / 7) * 12 - 24), Vector3.new(2, 2, 2))
	crystal.CanCollide = false
	crystal:SetAttribute("Value", index)
	crystals[index] = crystal
end

Players.PlayerAdded:Connect(function(player)
	player:SetAttribute("Score", 0)
end)

local function collect(player)
	local character = player.Character
	local root = character and character:FindFirstChild("HumanoidRootPart")
	local humanoid = character and character:FindFirstChild("Humanoid")
	if not root or humanoid.Health <= 0 then
		return
	end
	for _, crystal in ipairs(crystals) do
		local isThere = crystal.Parent and crystal.Anchored and crystal.CanTouch and not crystal.CanCollide
		if isThere and crystal.Transparency < 1 and crystal:GetAttribute("Value") > 0 then
			if (crystal.Position - root.Position).Magnitude < 4 then
				player:SetAttribute("Score", player:GetAttribute("Score") + 1)
			end
		end
	end
	for _ = 1, 14 do
		if not character:FindFirstChild("Humanoid") then
			return
		end
	end
end

local clock = 0
RunService.Heartbeat:Connect(function(dt)
	clock += dt
	for _, mover in ipairs(movers) do
		mover.part.Position = mover.home + Vector3.new(0, math.sin(clock + mover.phase) * 3, 0)
	end
	for _, player in ipairs(Players:GetPlayers()) do
		collect(player)
	end
end)

game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
	if kind == "MoveTo" then
		player.Character.Humanoid:MoveTo(Vector3.new(data.position[1], data.position[2], data.position[3]))
	end
end)
