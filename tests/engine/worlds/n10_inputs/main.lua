-- N10: inputs: their order, their data, queues, clicks, and how players are removed.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local Inputs = game:GetService("AgentInputService")
local RunService = game:GetService("RunService")

local seen, data = {}, {}
Inputs.InputReceived:Connect(function(player, kind, value)
	table.insert(seen, player.Name .. ":" .. kind)
	data[kind] = value
end)

local order = {}
RunService.Stepped:Connect(function()
	table.insert(order, "stepped")
end)
Inputs.InputReceived:Connect(function()
	table.insert(order, "input")
end)

local polled = {}
RunService.Heartbeat:Connect(function()
	for _, player in Players:GetPlayers() do
		local pending = Inputs:HasPendingInputs(player)
		local inputs = Inputs:GetInputs(player)
		Check.equal("HasPendingInputs", pending, #inputs > 0)
		Check.equal("GetInputs clears the queue", #Inputs:GetInputs(player), 0)
		for _, input in inputs do
			table.insert(polled, player.Name .. ":" .. input.type)
			if input.type == "Data" then
				Check.equal("entries have data", input.data.n, 3)
			end
		end
	end
end)

local clicks = {}
Players.PlayerAdded:Connect(function(player)
	local gui = Instance.new("ScreenGui")
	gui.Parent = player.PlayerGui
	local button = Instance.new("TextButton")
	button.Parent = gui
	button.MouseButton1Click:Connect(function()
		table.insert(clicks, player.Name)
	end)
	local label = Instance.new("TextLabel")
	label.Parent = gui
	player:SetAttribute("Button", tonumber(button:GetDebugId()))
end)

local leaving = {}
Players.PlayerRemoving:Connect(function(player)
	table.insert(leaving, player.Name)
	Check.that("he is still listed", table.find(Players:GetPlayers(), player) ~= nil)
	Check.equal("and has his character", player.Character.Parent, Workspace)
end)

task.spawn(function()
	task.wait(0.5)
	Check.list("players in order of joining, inputs first in first out", seen, { "Ada:One", "Ada:Two", "Bo:Three", "Ada:Data", "Ada:Nothing" })
	Check.equal("Stepped comes before inputs", table.find(order, "input") > 1, true)
	Check.list("polling in Heartbeat gets them all", polled, seen)
	local value = data.Data
	Check.equal("integers stay integral", tostring(value.n), "3")
	Check.equal("null is nil", value.none, nil)
	Check.equal("arrays count from 1", value.list[1], "a")
	Check.equal("null in an array leaves a hole", value.list[2], nil)
	Check.equal("and later items keep their place", value.list[3], "c")
	Check.equal("deep", value.deep.on, true)
	Check.equal("no data is nil", data.Nothing, nil)

	local ada, bo = Players:FindFirstChild("Ada"), Players:FindFirstChild("Bo")
	Check.list("GetPlayers in order of joining", Players:GetPlayers(), { "Ada", "Bo" })
	Check.list("GetChildren is the same", Players:GetChildren(), { "Ada", "Bo" })
	Check.equal("GetPlayerByUserId", Players:GetPlayerByUserId(bo.UserId), bo)
	Check.equal("GetPlayerFromCharacter", Players:GetPlayerFromCharacter(ada.Character), ada)
	Check.equal("not from a part", Players:GetPlayerFromCharacter(Workspace), nil)
	Check.that("UserId is a whole number below 2^53", ada.UserId % 1 == 0 and ada.UserId >= 1 and ada.UserId < 2 ^ 53)
	Check.equal("DisplayName", ada.DisplayName, "Ada")
	local character = bo.Character
	bo:Kick("enough")
	Check.equal("a kick waits for the next tick", bo.Parent, Players)
	task.wait()
	task.wait()
	Check.list("PlayerRemoving fires", leaving, { "Bo" })
	Check.equal("the character is gone", character.Parent, nil)
	Check.list("and the player", Players:GetPlayers(), { "Ada" })
	Check.done()
end)
