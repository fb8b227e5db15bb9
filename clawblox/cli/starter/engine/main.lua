-- Coin Island: collect coins on the island and on the steps that turn around the tower.
-- API.md tells agents what they see and what they can do; keep it true when you change this.

local Players = game:GetService("Players")
local RunService = game:GetService("RunService")
local AgentInputService = game:GetService("AgentInputService")

local START = Vector3.new(0, 3, 26)
local STEPS = 5
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

-- The island -------------------------------------------------------------------------------------

local function scenery(name, size, position, color, material)
	local new = part(name, size, position, color, material)
	new:AddTag("Static") -- agents do not see it in observations; API.md describes it
	return new
end

scenery("Ground", Vector3.new(64, 2, 64), Vector3.new(0, -1, 0), Color3.fromRGB(104, 170, 82), Enum.Material.Grass)
scenery("Rock", Vector3.new(58, 5, 58), Vector3.new(0, -4.5, 0), Color3.fromRGB(128, 112, 98), Enum.Material.Slate)
scenery("Tower", Vector3.new(8, 18, 8), Vector3.new(0, 9, 0), Color3.fromRGB(186, 108, 84), Enum.Material.Brick)
for i = 1, 6 do
	local angle = i * 1.05 + 0.3
	local at = Vector3.new(math.cos(angle) * 27, 0, math.sin(angle) * 27)
	local trunk = scenery("Trunk", Vector3.new(1.4, 6, 1.4), at + Vector3.new(0, 3, 0), Color3.fromRGB(120, 84, 56), Enum.Material.Wood)
	trunk.Shape = Enum.PartType.Cylinder
	local crown = scenery("Crown", Vector3.new(6, 6, 6), at + Vector3.new(0, 7.5, 0), Color3.fromRGB(70, 140, 74), Enum.Material.Grass)
	crown.Shape, crown.CanCollide = Enum.PartType.Ball, false
end

local beacon = part("Beacon", Vector3.new(3, 3, 3), Vector3.new(0, 20.5, 0), Color3.fromRGB(255, 170, 60), Enum.Material.Neon)
beacon.Shape, beacon.CanCollide = Enum.PartType.Ball, false
local sign = Instance.new("BillboardGui")
sign.StudsOffset = Vector3.new(0, 4, 0)
sign.Parent = beacon
local signText = Instance.new("TextLabel")
signText.Text, signText.TextSize = "Touch me: 10 coins", 20
signText.TextColor3 = Color3.fromRGB(255, 236, 170)
signText.Parent = sign

local steps = {}
for i = 1, STEPS do
	steps[i] = part("Step" .. i, Vector3.new(8, 1, 8), Vector3.new(0, 3.2 * i, 12), Color3.fromHSV(0.5 + i * 0.07, 0.55, 0.95), Enum.Material.SmoothPlastic)
end

-- The score --------------------------------------------------------------------------------------

local state = Instance.new("Folder")
state.Name = "GameState"
state:SetAttribute("BestPlayer", "")
state:SetAttribute("BestCoins", 0)
state.Parent = workspace

local function give(player, coins)
	local total = math.max(0, (player:GetAttribute("Coins") or 0) + coins)
	player:SetAttribute("Coins", total)
	local screen = player.PlayerGui:FindFirstChild("Score")
	if screen then
		screen.Panel.Coins.Text = `Coins: {total}`
	end
	if total > state:GetAttribute("BestCoins") then
		state:SetAttribute("BestPlayer", player.Name)
		state:SetAttribute("BestCoins", total)
		signText.Text = `Best: {player.Name} with {total}`
	end
end

local function goHome(player)
	local root = player.Character and player.Character:FindFirstChild("HumanoidRootPart")
	if root then
		root.Position = START
	end
end

local function addCoin(name, position, worth)
	local coin = part(name, Vector3.new(2.4, 0.4, 2.4), position, Color3.fromRGB(255, 204, 64), Enum.Material.Neon)
	coin.Shape, coin.CanCollide = Enum.PartType.Cylinder, false
	coin:SetAttribute("Worth", worth)
	coin.Touched:Connect(function(other)
		local player = Players:GetPlayerFromCharacter(other.Parent)
		if player and coin.Transparency == 0 then
			coin.Transparency = 1
			give(player, worth)
			task.wait(COIN_BACK_AFTER)
			coin.Transparency = 0
		end
	end)
	return coin
end

local coins, stepCoins = {}, {}
for i = 1, 10 do
	local angle = i * math.pi / 5
	coins[i] = addCoin("Coin" .. i, Vector3.new(math.cos(angle) * 21, 2, math.sin(angle) * 21), 1)
end
for i, step in steps do
	stepCoins[i] = addCoin("StepCoin" .. i, step.Position, 3)
end

beacon.Touched:Connect(function(other)
	local player = Players:GetPlayerFromCharacter(other.Parent)
	if player then
		give(player, BEACON_REWARD)
		goHome(player)
	end
end)

-- Players ----------------------------------------------------------------------------------------

local function label(class, name, text, y, parent)
	local new = Instance.new(class)
	new.Name, new.Text, new.TextSize = name, text, 18
	new.Position, new.Size = UDim2.new(0, 10, 0, y), UDim2.new(1, -20, 0, 28)
	new.TextColor3, new.Parent = Color3.new(1, 1, 1), parent
	return new
end

Players.PlayerAdded:Connect(function(player)
	local screen = Instance.new("ScreenGui")
	screen.Name = "Score"
	local panel = Instance.new("Frame")
	panel.Name = "Panel"
	panel.Position, panel.Size = UDim2.new(0.5, -90, 0, 14), UDim2.new(0, 180, 0, 78)
	panel.BackgroundTransparency = 0.3
	panel.BackgroundColor3, panel.BorderSizePixel = Color3.fromRGB(20, 28, 44), 0
	panel.Parent = screen
	label("TextLabel", "Coins", "Coins: 0", 6, panel)
	local home = label("TextButton", "Home", "Back to the start", 40, panel)
	home.BackgroundColor3, home.BackgroundTransparency = Color3.fromRGB(255, 150, 60), 0
	home.MouseButton1Click:Connect(function()
		goHome(player)
	end)
	screen.Parent = player.PlayerGui
	give(player, 0)
	goHome(player)
end)

AgentInputService.InputReceived:Connect(function(player, kind, data)
	local humanoid = player.Character and player.Character:FindFirstChild("Humanoid")
	if kind == "MoveTo" and humanoid then
		humanoid:MoveTo(Vector3.new(data.position[1], data.position[2], data.position[3]))
	elseif kind == "Stop" and humanoid then
		humanoid:CancelMoveTo()
	elseif kind == "Jump" and humanoid then
		humanoid.Jump = true
	elseif kind == "Home" then
		goHome(player)
	end
end)

-- What moves -------------------------------------------------------------------------------------

local seconds = 0
RunService.Heartbeat:Connect(function(dt)
	seconds += dt
	for i, step in steps do
		local angle = seconds * 0.15 + i * math.pi / 3
		local height = 3.2 * i + 0.6 * math.sin(seconds + i)
		step.Position = Vector3.new(math.cos(angle) * 12, height, math.sin(angle) * 12)
		stepCoins[i].Position = step.Position + Vector3.new(0, 2.5, 0)
	end
	for i, coin in coins do
		coin.CFrame = CFrame.new(coin.Position) * CFrame.Angles(0, seconds * 2 + i, 0) * CFrame.Angles(math.pi / 2, 0, 0)
	end
	for _, player in Players:GetPlayers() do
		local root = player.Character and player.Character:FindFirstChild("HumanoidRootPart")
		if root and root.Position.Y < LOST_BELOW then
			give(player, -1)
			goHome(player)
		end
	end
end)

print("Coin Island is ready")
