-- Coin Island: collect coins on the island and on the steps that turn around the tower.
-- API.md tells agents what they see and what they can do; keep it true when you change this.

local Players = game:GetService("Players")
local RunService = game:GetService("RunService")
local AgentInputService = game:GetService("AgentInputService")

local START = Vector3.new(0, 3, 26)
local COIN_BACK_AFTER = 8 -- seconds
local BEACON_REWARD = 10
local LOST_BELOW = -15

local function part(name, size, position, color, material)
	local new = Instance.new("Part")
	new.Name, new.Size, new.Position = name, size, position
	new.Color, new.Material, new.Anchored = color, material, true
	new.Parent = workspace
	return new
end

-- The island. Agents do not see parts tagged Static in observations; API.md describes them.

local function scenery(...)
	local new = part(...)
	new:AddTag("Static")
	return new
end

scenery("Ground", Vector3.new(64, 2, 64), Vector3.new(0, -1, 0), Color3.fromRGB(104, 170, 82), Enum.Material.Grass)
scenery("Rock", Vector3.new(58, 5, 58), Vector3.new(0, -4.5, 0), Color3.fromRGB(128, 112, 98), Enum.Material.Slate)
scenery("Tower", Vector3.new(8, 18, 8), Vector3.new(0, 9, 0), Color3.fromRGB(186, 108, 84), Enum.Material.Brick)
for i = 1, 6 do
	local at = Vector3.new(math.cos(i * math.pi / 3) * 28, 3, math.sin(i * math.pi / 3) * 28)
	local trunk = scenery("Trunk", Vector3.new(1.4, 6, 1.4), at, Color3.fromRGB(120, 84, 56), Enum.Material.Wood)
	trunk.Shape = Enum.PartType.Cylinder
	local crown = scenery("Crown", Vector3.new(6, 6, 6), at + Vector3.new(0, 4.5, 0), Color3.fromRGB(70, 140, 74), Enum.Material.Grass)
	crown.Shape, crown.CanCollide = Enum.PartType.Ball, false
end

local beacon = part("Beacon", Vector3.new(3, 3, 3), Vector3.new(0, 20.5, 0), Color3.fromRGB(255, 170, 60), Enum.Material.Neon)
beacon.Shape, beacon.CanCollide = Enum.PartType.Ball, false
local sign = Instance.new("BillboardGui")
sign.StudsOffset, sign.Parent = Vector3.new(0, 4, 0), beacon
local signText = Instance.new("TextLabel")
signText.Text, signText.TextSize = "Touch me: 10 coins", 20
signText.TextColor3, signText.Parent = Color3.fromRGB(255, 236, 170), sign

-- The score.

local state = Instance.new("Folder")
state.Name, state.Parent = "GameState", workspace
state:SetAttribute("BestPlayer", "")
state:SetAttribute("BestCoins", 0)

local function give(player, coins)
	local total = math.max(0, (player:GetAttribute("Coins") or 0) + coins)
	player:SetAttribute("Coins", total)
	player.PlayerGui.Score.Panel.TextLabel.Text = `Coins: {total}`
	if total > state:GetAttribute("BestCoins") then
		state:SetAttribute("BestPlayer", player.Name)
		state:SetAttribute("BestCoins", total)
		signText.Text = `Best: {player.Name} with {total}`
	end
end

local function goHome(player)
	player.Character.HumanoidRootPart.Position = START
end

local function onTouch(thing, reward)
	thing.Touched:Connect(function(other)
		local player = Players:GetPlayerFromCharacter(other.Parent)
		if player then
			reward(player)
		end
	end)
end

onTouch(beacon, function(player)
	give(player, BEACON_REWARD)
	goHome(player)
end)

local function addCoin(name, worth)
	local coin = part(name, Vector3.new(2.4, 0.4, 2.4), Vector3.zero, Color3.fromRGB(255, 204, 64), Enum.Material.Neon)
	coin.Shape, coin.CanCollide = Enum.PartType.Cylinder, false
	coin:SetAttribute("Worth", worth)
	onTouch(coin, function(player)
		if coin.Transparency == 0 then
			coin.Transparency = 1
			give(player, worth)
			task.wait(COIN_BACK_AFTER)
			coin.Transparency = 0
		end
	end)
	return coin
end

local coins, steps, stepCoins = {}, {}, {}
for i = 1, 10 do
	coins[i] = addCoin("Coin" .. i, 1)
end
for i = 1, 5 do
	local color = Color3.fromRGB(70 + 25 * i, 210 - 22 * i, 235)
	steps[i] = part("Step" .. i, Vector3.new(8, 1, 8), Vector3.zero, color, Enum.Material.SmoothPlastic)
	stepCoins[i] = addCoin("StepCoin" .. i, 3)
end

-- Players: their score and a button on the screen, and what they do.

Players.PlayerAdded:Connect(function(player)
	local screen, panel = Instance.new("ScreenGui"), Instance.new("Frame")
	screen.Name, panel.Name, panel.Parent = "Score", "Panel", screen
	panel.Position, panel.Size = UDim2.new(0.5, -90, 0, 14), UDim2.new(0, 180, 0, 78)
	panel.BackgroundColor3, panel.BackgroundTransparency = Color3.fromRGB(20, 28, 44), 0.3
	for i, class in { "TextLabel", "TextButton" } do
		local line = Instance.new(class)
		line.Name, line.Text, line.TextSize = class, "Back to the start", 18
		line.Position, line.Size = UDim2.new(0, 10, 0, 34 * i - 28), UDim2.new(1, -20, 0, 28)
		line.TextColor3, line.Parent = Color3.new(1, 1, 1), panel
	end
	panel.TextButton.BackgroundColor3 = Color3.fromRGB(200, 90, 30)
	panel.TextButton.BackgroundTransparency = 0
	panel.TextButton.MouseButton1Click:Connect(function()
		goHome(player)
	end)
	screen.Parent = player.PlayerGui
	give(player, 0)
	goHome(player)
end)

AgentInputService.InputReceived:Connect(function(player, kind, data)
	local humanoid = player.Character.Humanoid
	if kind == "MoveTo" then
		humanoid:MoveTo(Vector3.new(data.position[1], data.position[2], data.position[3]))
	elseif kind == "Stop" then
		humanoid:CancelMoveTo()
	elseif kind == "Jump" then
		humanoid.Jump = true
	elseif kind == "Home" then
		goHome(player)
	end
end)

-- What moves: steps and coins; and who falls into the sea comes back.

local function onCircle(radius, angle, height)
	return Vector3.new(math.cos(angle) * radius, height, math.sin(angle) * radius)
end

local seconds = 0
RunService.Heartbeat:Connect(function(dt)
	seconds += dt
	local spin = CFrame.Angles(0, seconds * 2, 0) * CFrame.Angles(math.pi / 2, 0, 0)
	for i, coin in coins do
		coin.CFrame = CFrame.new(onCircle(21, i * math.pi / 5, 2)) * spin
	end
	for i, step in steps do
		step.Position = onCircle(12, seconds * 0.15 + i * math.pi / 3, 3.2 * i + 0.6 * math.sin(seconds + i))
		stepCoins[i].CFrame = CFrame.new(step.Position + Vector3.new(0, 2.5, 0)) * spin
	end
	for _, player in Players:GetPlayers() do
		if player.Character.HumanoidRootPart.Position.Y < LOST_BELOW then
			give(player, -1)
			goHome(player)
		end
	end
end)

print("Coin Island is ready")
