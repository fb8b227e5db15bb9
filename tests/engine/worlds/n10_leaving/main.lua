-- N10: idle players, kicks and leaving: who is removed when, and what scripts see.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")
local DataStoreService = game:GetService("DataStoreService")

Check.equal("MaxPlayers", Players.MaxPlayers, 4)
local left = {}
Players.PlayerAdded:Connect(function(player)
	if player.Name == "Unwanted" then
		player:Kick()
	end
end)
Players.PlayerRemoving:Connect(function(player)
	left[player.Name] = math.floor(tick() * 60 + 0.5)
	Check.that("still listed", table.find(Players:GetPlayers(), player) ~= nil)
	Check.equal("still with a character", player.Character.Parent, Workspace)
	local character = player.Character
	task.defer(function()
		Check.equal("then the character is gone", character.Parent, nil)
		Check.equal("and the player", player.Parent, nil)
	end)
	task.spawn(function()
		DataStoreService:GetDataStore("left"):SetAsync(player.Name, true)
	end)
end)

task.spawn(function()
	task.wait(7)
	Check.equal("one who leaves is gone at once", left.Leaver, 60)
	Check.equal("a kick at joining works in the next tick", left.Unwanted, 10)
	-- idle since tick 0, longer than 2 s: the check of tick 180 finds it
	Check.equal("an idle player is removed at the first check after the time", left.Idle, 180)
	Check.equal("one who acts is not", left.Busy, 300)
	Check.equal("nobody is left", #Players:GetPlayers(), 0)
	Check.equal("rows are written", DataStoreService:GetDataStore("left"):GetAsync("Idle"), true)
	Check.done()
end)
