-- A race over moving platforms. `Course` says what there is; this script builds it, moves it
-- and judges it. Everything that agents need stands in attributes, which they observe.

local Players = game:GetService("Players")
local RunService = game:GetService("RunService")
local AgentInputService = game:GetService("AgentInputService")
local RemoteEventService = game:GetService("RemoteEventService")
local ServerScriptService = game:GetService("ServerScriptService")

local Course = require(ServerScriptService:WaitForChild("Course"))

local race = Instance.new("Folder")
race.Name = "Race"
race.Parent = Workspace
race:SetAttribute("Checkpoints", #Course.checkpoints)
race:SetAttribute("BestTime", 0)
race:SetAttribute("BestPlayer", "")

local clock = 0 -- seconds since the world began
local movers = {} -- platforms that swing
local spinners = {}
local coins = {}
local runs = {} -- by UserId: what the race knows of a player

local function makePart(name, position, size, color, material)
	local part = Instance.new("Part")
	part.Name = name
	part.Size = size
	part.Position = position
	part.Color = color
	part.Material = material or Enum.Material.SmoothPlastic
	part.Anchored = true
	part.Parent = race
	return part
end

local function topAt(part, position, size)
	part.Position = position - Vector3.new(0, size.Y / 2, 0)
end

-- The course

local function buildLava()
	local lava = makePart(
		"Lava",
		Vector3.new(100, Course.lavaHeight - 0.5, 0),
		Vector3.new(280, 1, 120),
		Color3.fromRGB(255, 80, 20),
		Enum.Material.Neon
	)
	lava:AddTag("Static")
end

local function buildCheckpoints()
	for index, checkpoint in ipairs(Course.checkpoints) do
		local part = makePart(
			checkpoint.name,
			checkpoint.position,
			checkpoint.size,
			Color3.fromRGB(90, 200, 120),
			Enum.Material.Grass
		)
		topAt(part, checkpoint.position, checkpoint.size)
		part:SetAttribute("Checkpoint", index)

		local board = Instance.new("BillboardGui")
		board.Size = UDim2.new(0, 120, 0, 40)
		board.StudsOffset = Vector3.new(0, 7, 0)
		board.AlwaysOnTop = true
		board.Parent = part
		local label = Instance.new("TextLabel")
		label.Size = UDim2.new(1, 0, 1, 0)
		label.BackgroundTransparency = 1
		label.Text = index .. ". " .. checkpoint.name
		label.TextColor3 = Color3.new(1, 1, 1)
		label.TextSize = 22
		label.Parent = board
	end
end

local function buildPlatforms()
	for index, platform in ipairs(Course.platforms) do
		local isMoving = platform.swing ~= nil
		local color = if isMoving then Color3.fromRGB(80, 140, 255) else Color3.fromRGB(180, 180, 195)
		local part = makePart("Platform" .. index, platform.position, platform.size, color)
		topAt(part, platform.position, platform.size)
		if isMoving then
			part:SetAttribute("Moves", true)
			part:SetAttribute("Period", platform.period)
			table.insert(movers, { part = part, home = part.Position, plan = platform })
		end
	end
end

local function buildSpinners()
	for index, spinner in ipairs(Course.spinners) do
		local part = makePart(
			"Spinner" .. index,
			spinner.position,
			Vector3.new(spinner.length, 1, 1),
			Color3.fromRGB(230, 60, 90),
			Enum.Material.Neon
		)
		part:SetAttribute("Hazard", true)
		part:SetAttribute("TurnsPerSecond", spinner.turnsPerSecond)
		table.insert(spinners, { part = part, plan = spinner })
	end
end

local function buildCoins()
	for index, position in ipairs(Course.coins) do
		local coin =
			makePart("Coin" .. index, position, Vector3.new(1.6, 1.6, 1.6), Color3.fromRGB(255, 210, 60), Enum.Material.Neon)
		coin.Shape = Enum.PartType.Ball
		coin.CanCollide = false
		coin:SetAttribute("Coin", true)
		table.insert(coins, coin)
	end
end

-- What a player sees of the own run

local function buildScreen(player)
	local gui = Instance.new("ScreenGui")
	gui.Name = "Race"
	gui.Parent = player.PlayerGui

	local panel = Instance.new("Frame")
	panel.Name = "Panel"
	panel.Position = UDim2.new(0.5, -130, 0, 12)
	panel.Size = UDim2.new(0, 260, 0, 44)
	panel.BackgroundColor3 = Color3.fromRGB(20, 24, 32)
	panel.BackgroundTransparency = 0.25
	panel.Parent = gui
	local corner = Instance.new("UICorner")
	corner.CornerRadius = UDim.new(0, 10)
	corner.Parent = panel

	local label = Instance.new("TextLabel")
	label.Name = "Status"
	label.Size = UDim2.new(1, -80, 1, 0)
	label.Position = UDim2.new(0, 10, 0, 0)
	label.BackgroundTransparency = 1
	label.TextColor3 = Color3.new(1, 1, 1)
	label.TextSize = 18
	label.TextXAlignment = Enum.TextXAlignment.Left
	label.Parent = panel

	local button = Instance.new("TextButton")
	button.Name = "Restart"
	button.Size = UDim2.new(0, 66, 0, 28)
	button.Position = UDim2.new(1, -72, 0, 8)
	button.BackgroundColor3 = Color3.fromRGB(80, 140, 255)
	button.TextColor3 = Color3.new(1, 1, 1)
	button.TextSize = 14
	button.Text = "Restart"
	button.Parent = panel
	return label, button
end

local function rootOf(player)
	local character = player.Character
	return character and character:FindFirstChild("HumanoidRootPart")
end

local function humanoidOf(player)
	local character = player.Character
	return character and character:FindFirstChild("Humanoid")
end

local function showNext(player, run)
	local goal = Course.checkpoints[run.checkpoint + 1]
	player:SetAttribute("Checkpoint", run.checkpoint)
	player:SetAttribute("NextName", goal and goal.name or "")
	player:SetAttribute("NextPosition", goal and goal.position or Course.checkpoints[#Course.checkpoints].position)
end

local function putBack(player, run)
	local root, humanoid = rootOf(player), humanoidOf(player)
	if not root or not humanoid then
		return
	end
	humanoid:CancelMoveTo()
	humanoid.Health = humanoid.MaxHealth
	root.Position = Course.checkpoints[run.checkpoint].position + Vector3.new(0, Course.respawnHeight, 0)
end

local function startRun(player)
	local run = runs[player.UserId]
	run.checkpoint = 1
	run.startedAt = clock
	run.finishedAt = nil
	run.coins = {}
	run.hurtUntil = 0
	player:SetAttribute("Coins", 0)
	player:SetAttribute("Deaths", 0)
	player:SetAttribute("Finished", false)
	player:SetAttribute("RaceTime", 0)
	showNext(player, run)
	putBack(player, run)
end

local function die(player, run, reason)
	player:SetAttribute("Deaths", player:GetAttribute("Deaths") + 1)
	player:SetAttribute("LastDeath", reason)
	putBack(player, run)
end

local function finish(player, run)
	run.finishedAt = clock
	local seconds = math.floor((clock - run.startedAt) * 100 + 0.5) / 100
	player:SetAttribute("Finished", true)
	player:SetAttribute("RaceTime", seconds)
	local best = race:GetAttribute("BestTime")
	if best == 0 or seconds < best then
		race:SetAttribute("BestTime", seconds)
		race:SetAttribute("BestPlayer", player.Name)
	end
	RemoteEventService:FireAllClients("Finished", { player = player.Name, seconds = seconds })
	print(player.Name .. " finished after " .. seconds .. " s")
end

-- Judging, once a tick

local function checkCheckpoint(player, run, root)
	local goal = Course.checkpoints[run.checkpoint + 1]
	if not goal then
		return
	end
	local offset = root.Position - goal.position
	local isInside = math.abs(offset.X) <= goal.size.X / 2 and math.abs(offset.Z) <= goal.size.Z / 2
	if isInside and offset.Y > 0 and offset.Y < 4 then
		run.checkpoint += 1
		showNext(player, run)
		if run.checkpoint == #Course.checkpoints then
			finish(player, run)
		end
	end
end

local function checkCoins(player, run, root)
	for index, coin in ipairs(coins) do
		if not run.coins[index] and (coin.Position - root.Position).Magnitude < 4 then
			run.coins[index] = true
			player:SetAttribute("Coins", player:GetAttribute("Coins") + 1)
			RemoteEventService:FireAllClients("Coin", { player = player.Name, coin = index })
		end
	end
end

local function updateScreen(player, run)
	if not run.finishedAt then
		player:SetAttribute("RaceTime", math.floor((clock - run.startedAt) * 10) / 10)
	end
	local text = string.format(
		"%d/%d   %.1f s   %d coins",
		run.checkpoint,
		#Course.checkpoints,
		player:GetAttribute("RaceTime"),
		player:GetAttribute("Coins")
	)
	if run.label.Text ~= text then
		run.label.Text = text
	end
end

local function moveCourse()
	for _, mover in ipairs(movers) do
		local plan = mover.plan
		local angle = (clock / plan.period + (plan.phase or 0)) * 2 * math.pi
		mover.part.Position = mover.home + plan.swing * math.sin(angle)
	end
	for _, spinner in ipairs(spinners) do
		local turn = clock * spinner.plan.turnsPerSecond * 2 * math.pi
		spinner.part.CFrame = CFrame.new(spinner.plan.position) * CFrame.Angles(0, turn, 0)
	end
end

RunService.Heartbeat:Connect(function(dt)
	clock += dt
	moveCourse()
	for _, player in ipairs(Players:GetPlayers()) do
		local run, root = runs[player.UserId], rootOf(player)
		if run and root then
			if root.Position.Y < Course.fallHeight then
				die(player, run, "lava")
			else
				checkCheckpoint(player, run, root)
				checkCoins(player, run, root)
			end
			updateScreen(player, run)
		end
	end
end)

-- Players

local function playerOf(part)
	local model = part.Parent
	return model and Players:GetPlayerFromCharacter(model)
end

local function hurtBy(spinner)
	spinner.part.Touched:Connect(function(other)
		local player = playerOf(other)
		local run = player and runs[player.UserId]
		if not run or clock < run.hurtUntil then
			return
		end
		run.hurtUntil = clock + 1
		local humanoid = humanoidOf(player)
		humanoid:TakeDamage(Course.spinnerDamage)
		if humanoid.Health <= 0 then
			die(player, run, "spinner")
		end
	end)
end

Players.PlayerAdded:Connect(function(player)
	local label, button = buildScreen(player)
	runs[player.UserId] = { label = label }
	button.MouseButton1Click:Connect(function()
		startRun(player)
	end)
	startRun(player)
end)

Players.PlayerRemoving:Connect(function(player)
	runs[player.UserId] = nil
end)

local FAR = 1e9 -- studs; the engine checks the positions of MoveTo, but not those of our own actions

local function isPosition(value)
	if type(value) ~= "table" then
		return false
	end
	for axis = 1, 3 do
		local number = value[axis]
		if type(number) ~= "number" or math.abs(number) > FAR then
			return false
		end
	end
	return #value == 3
end

local function toVector(position)
	return Vector3.new(position[1], position[2], position[3])
end

local actions = {}

function actions.MoveTo(player, humanoid, data)
	humanoid:MoveTo(toVector(data.position))
end

function actions.Jump(player, humanoid)
	humanoid.Jump = true
end

function actions.Leap(player, humanoid, data)
	if type(data) == "table" and isPosition(data.position) then
		humanoid:MoveTo(toVector(data.position))
		humanoid.Jump = true
	end
end

function actions.Stop(player, humanoid)
	humanoid:CancelMoveTo()
end

function actions.Restart(player)
	startRun(player)
end

AgentInputService.InputReceived:Connect(function(player, inputType, data)
	local action, humanoid = actions[inputType], humanoidOf(player)
	if action and humanoid then
		action(player, humanoid, data)
	end
end)

buildLava()
buildCheckpoints()
buildPlatforms()
buildSpinners()
buildCoins()
for _, spinner in ipairs(spinners) do
	hurtBy(spinner)
end
print("Platform race: " .. #Course.checkpoints .. " checkpoints, " .. #coins .. " coins")
