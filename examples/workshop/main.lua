-- A place to build together: gather, craft at the bench, place blocks on a grid.
-- Inventories are attributes and a GUI; the leaderboard is an ordered data store.

local Players = game:GetService("Players")
local AgentInputService = game:GetService("AgentInputService")
local DataStoreService = game:GetService("DataStoreService")
local RemoteEventService = game:GetService("RemoteEventService")
local ServerScriptService = game:GetService("ServerScriptService")

local Goods = require(ServerScriptService:WaitForChild("Goods"))

local SAVE_EVERY = 15 -- seconds

local inventories = {} -- by UserId: how many of each kind
local screens = {} -- by UserId: the labels of the GUI
local selected = {} -- by UserId: the block that clicks place
local points = {} -- by UserId
local cells = {} -- by "x,y,z": the block there
local blockCount = 0

local function folder(name)
	local made = Instance.new("Folder")
	made.Name = name
	made.Parent = Workspace
	return made
end

local scenery, building, board = folder("Scenery"), folder("Building"), folder("Leaderboard")
building:SetAttribute("Blocks", 0)

local function makePart(name, position, size, color, material, parent)
	local part = Instance.new("Part")
	part.Name = name
	part.Size = size
	part.Position = position
	part.Color = color
	part.Material = material
	part.Anchored = true
	part.Parent = parent
	return part
end

local function write(part, text, height)
	local gui = Instance.new("BillboardGui")
	gui.Size = UDim2.new(0, 160, 0, 60)
	gui.StudsOffset = Vector3.new(0, height, 0)
	gui.Parent = part
	local label = Instance.new("TextLabel")
	label.Size = UDim2.new(1, 0, 1, 0)
	label.BackgroundTransparency = 1
	label.TextColor3 = Color3.new(1, 1, 1)
	label.TextSize = 18
	label.Text = text
	label.Parent = gui
	return label
end

-- The place

local ground = makePart(
	"Ground",
	Vector3.new(0, -0.5, 0),
	Vector3.new(120, 1, 100),
	Color3.fromRGB(106, 160, 92),
	Enum.Material.Grass,
	scenery
)
ground:AddTag("Static")
local plot = makePart(
	"Plot",
	Vector3.new(0, 0.05, 16),
	Vector3.new(2 * Goods.plot, 0.1, 2 * Goods.plot),
	Color3.fromRGB(150, 140, 120),
	Enum.Material.Concrete,
	scenery
)
plot:AddTag("Static")

local bench =
	makePart("Bench", Goods.bench, Vector3.new(8, 3, 3), Color3.fromRGB(120, 84, 52), Enum.Material.Wood, scenery)
bench:SetAttribute("Bench", true)
write(bench, "Bench", 4)

local sources = {}
for _, plan in ipairs(Goods.sources) do
	local part = makePart(plan.name, plan.position, plan.size, plan.color, plan.material, scenery)
	part:SetAttribute("Gives", plan.gives)
	part:SetAttribute("Stock", plan.stock)
	write(part, plan.gives, plan.size.Y / 2 + 2)
	table.insert(sources, { part = part, plan = plan })
end

local boardPart = makePart(
	"Board",
	Vector3.new(0, 7, -24),
	Vector3.new(16, 8, 1),
	Color3.fromRGB(40, 46, 58),
	Enum.Material.SmoothPlastic,
	scenery
)
local boardLabel = write(boardPart, "Best builders", 6)

-- Inventories

local function showInventory(player)
	local inventory, screen = inventories[player.UserId], screens[player.UserId]
	for _, kind in ipairs(Goods.kinds) do
		player:SetAttribute(kind, inventory[kind])
	end
	player:SetAttribute("Points", points[player.UserId])
	player:SetAttribute("Selected", selected[player.UserId])
	for kind, label in pairs(screen) do
		label.Text = kind .. "  " .. inventory[kind]
		local isSelected = kind == selected[player.UserId]
		label.BackgroundColor3 = if isSelected then Color3.fromRGB(80, 140, 255) else Color3.fromRGB(30, 36, 48)
	end
end

local function give(player, kind, count)
	local inventory = inventories[player.UserId]
	inventory[kind] += count
	showInventory(player)
end

local function tell(player, text)
	player:SetAttribute("Message", text)
end

local function distanceTo(player, position)
	local character = player.Character
	local root = character and character:FindFirstChild("HumanoidRootPart")
	return if root then (root.Position - position).Magnitude else math.huge
end

-- Actions: each returns what the player is told

local actions = {}

function actions.Gather(player)
	local nearest, best = nil, Goods.reach
	for _, source in ipairs(sources) do
		local distance = distanceTo(player, source.part.Position)
		if distance <= best and source.part:GetAttribute("Stock") > 0 then
			nearest, best = source, distance
		end
	end
	if not nearest then
		return "nothing to gather within " .. Goods.reach .. " studs"
	end
	local stock = nearest.part:GetAttribute("Stock") - 1
	nearest.part:SetAttribute("Stock", stock)
	give(player, nearest.plan.gives, 1)
	if stock == 0 then
		nearest.part.Transparency = 0.7
		task.delay(nearest.plan.refill, function()
			nearest.part.Transparency = 0
			nearest.part:SetAttribute("Stock", nearest.plan.stock)
		end)
	end
	return "1 " .. nearest.plan.gives
end

function actions.Craft(player, data)
	local recipe = type(data) == "table" and Goods.recipes[data.item]
	if not recipe then
		return "Craft needs data.item: Plank, Brick, Window or Lamp"
	end
	if distanceTo(player, bench.Position) > Goods.reach then
		return "the bench is too far away"
	end
	local inventory = inventories[player.UserId]
	for kind, count in pairs(recipe.from) do
		if inventory[kind] < count then
			return "not enough " .. kind
		end
	end
	for kind, count in pairs(recipe.from) do
		inventory[kind] -= count
	end
	give(player, data.item, recipe.makes)
	return recipe.makes .. " " .. data.item
end

local function cellOf(position)
	local x = math.floor(position[1] / Goods.cell)
	local y = math.floor(position[2] / Goods.cell)
	local z = math.floor(position[3] / Goods.cell)
	return x, y, z, x .. "," .. y .. "," .. z
end

local function middleOf(x, y, z)
	return Vector3.new(x + 0.5, y + 0.5, z + 0.5) * Goods.cell
end

local function isOnPlot(x, y, z)
	local offset = middleOf(x, y, z) - plot.Position
	return math.abs(offset.X) < Goods.plot and math.abs(offset.Z) < Goods.plot and y >= 0 and y < Goods.maxHeight
end

local function isSupported(x, y, z)
	return y == 0
		or cells[x .. "," .. (y - 1) .. "," .. z] ~= nil
		or cells[(x - 1) .. "," .. y .. "," .. z] ~= nil
		or cells[(x + 1) .. "," .. y .. "," .. z] ~= nil
		or cells[x .. "," .. y .. "," .. (z - 1)] ~= nil
		or cells[x .. "," .. y .. "," .. (z + 1)] ~= nil
end

function actions.Select(player, data)
	if type(data) ~= "table" or not Goods.blocks[data.block] then
		return "Select needs data.block: Plank, Brick, Window or Lamp"
	end
	selected[player.UserId] = data.block
	showInventory(player)
	return "selected " .. data.block
end

function actions.Place(player, data)
	local kind = data.block or selected[player.UserId]
	local look = Goods.blocks[kind]
	if not look then
		return "no such block: " .. tostring(kind)
	end
	local x, y, z, key = cellOf(data.position)
	if not isOnPlot(x, y, z) then
		return "that is outside the plot"
	end
	if cells[key] then
		return "there is a block already"
	end
	if not isSupported(x, y, z) then
		return "a block needs the ground or another block beside or below it"
	end
	local at = middleOf(x, y, z)
	if distanceTo(player, at) > Goods.reach then
		return "too far away"
	end
	if inventories[player.UserId][kind] < 1 then
		return "you have no " .. kind
	end
	if blockCount >= Goods.maxBlocks then
		return "the plot is full"
	end
	local size = Vector3.new(Goods.cell, Goods.cell, Goods.cell)
	local block = makePart(kind, at, size, look.color, look.material, building)
	block.Transparency = look.transparency or 0
	block:SetAttribute("Builder", player.Name)
	cells[key] = block
	blockCount += 1
	building:SetAttribute("Blocks", blockCount)
	points[player.UserId] += look.points
	give(player, kind, -1)
	RemoteEventService:FireAllClients("Placed", { player = player.Name, block = kind, position = at })
	return "placed " .. kind
end

-- The engine checks the positions of MoveTo and Place, but not those of our own actions.
local function isPosition(value)
	if type(value) ~= "table" then
		return false
	end
	for axis = 1, 3 do
		if type(value[axis]) ~= "number" then
			return false
		end
	end
	return #value == 3
end

function actions.Remove(player, data)
	if type(data) ~= "table" or not isPosition(data.position) then
		return "Remove needs data.position: [x, y, z]"
	end
	local x, y, z, key = cellOf(data.position)
	local block = cells[key]
	if not block then
		return "there is no block"
	end
	if block:GetAttribute("Builder") ~= player.Name then
		return "only " .. block:GetAttribute("Builder") .. " may remove it"
	end
	if distanceTo(player, block.Position) > Goods.reach then
		return "too far away"
	end
	cells[key] = nil
	blockCount -= 1
	building:SetAttribute("Blocks", blockCount)
	points[player.UserId] -= Goods.blocks[block.Name].points
	give(player, block.Name, 1)
	block:Destroy()
	return "removed"
end

function actions.MoveTo(player, data)
	player.Character.Humanoid:MoveTo(Vector3.new(data.position[1], data.position[2], data.position[3]))
	return ""
end

function actions.Jump(player)
	player.Character.Humanoid.Jump = true
	return ""
end

function actions.Stop(player)
	player.Character.Humanoid:CancelMoveTo()
	return ""
end

AgentInputService.InputReceived:Connect(function(player, inputType, data)
	local action = actions[inputType]
	if action and player.Character then
		tell(player, action(player, data))
	end
end)

-- The screen of a player

local function buildScreen(player)
	local gui = Instance.new("ScreenGui")
	gui.Name = "Inventory"
	gui.Parent = player.PlayerGui
	local bar = Instance.new("Frame")
	bar.Name = "Bar"
	bar.Size = UDim2.new(0, 424, 0, 48)
	bar.Position = UDim2.new(0.5, -212, 1, -64)
	bar.BackgroundColor3 = Color3.fromRGB(16, 20, 28)
	bar.BackgroundTransparency = 0.2
	bar.Parent = gui
	local corner = Instance.new("UICorner")
	corner.CornerRadius = UDim.new(0, 12)
	corner.Parent = bar

	local labels = {}
	for index, kind in ipairs(Goods.blockOrder) do
		local button = Instance.new("TextButton")
		button.Name = kind
		button.Size = UDim2.new(0, 98, 0, 36)
		button.Position = UDim2.new(0, 6 + (index - 1) * 104, 0, 6)
		button.TextColor3 = Color3.new(1, 1, 1)
		button.TextSize = 16
		button.Parent = bar
		button.MouseButton1Click:Connect(function()
			actions.Select(player, { block = kind })
		end)
		labels[kind] = button
	end
	return labels
end

-- The leaderboard

local ranking = DataStoreService:GetOrderedDataStore("builders")

local function readRanking()
	local ok, entries = pcall(function()
		return ranking:GetSortedAsync(false, 5)
	end)
	if not ok then
		warn("no leaderboard: " .. tostring(entries))
		return
	end
	local lines = { "Best builders" }
	for place, entry in ipairs(entries) do
		board:SetAttribute("Place" .. place, entry.value.name .. ": " .. entry.value.score)
		table.insert(lines, place .. ". " .. entry.value.name .. "  " .. entry.value.score)
	end
	boardLabel.Text = table.concat(lines, "\n")
end

local function savePoints(player)
	local score = points[player.UserId]
	if not score or score == 0 then
		return
	end
	local ok, problem = pcall(function()
		local key = tostring(player.UserId)
		local known = ranking:GetAsync(key)
		if not known or known.score < score then
			ranking:SetAsync(key, { name = player.Name, score = score })
		end
	end)
	if not ok then
		warn("the points of " .. player.Name .. " are not saved: " .. tostring(problem))
	end
end

Players.PlayerAdded:Connect(function(player)
	local inventory = {}
	for _, kind in ipairs(Goods.kinds) do
		inventory[kind] = 0
	end
	inventories[player.UserId] = inventory
	points[player.UserId] = 0
	selected[player.UserId] = "Plank"
	screens[player.UserId] = buildScreen(player)
	tell(player, "welcome")
	showInventory(player)
end)

Players.PlayerRemoving:Connect(function(player)
	local user = player.UserId
	task.spawn(function()
		savePoints(player)
		inventories[user], screens[user], selected[user], points[user] = nil, nil, nil, nil
	end)
end)

task.spawn(function()
	while true do
		readRanking()
		task.wait(SAVE_EVERY)
		for _, player in ipairs(Players:GetPlayers()) do
			savePoints(player)
		end
	end
end)

print("Workshop: " .. #sources .. " sources, " .. #Goods.blockOrder .. " kinds of blocks")
