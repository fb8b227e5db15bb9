local board = Instance.new("Folder", workspace)
board.Name = "Board"
local beats, total = 0, 0
game:GetService("RunService").Heartbeat:Connect(function()
	beats += 1
	total += math.random(6)
	board:SetAttribute("Total", total)
end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
	board:SetAttribute(kind, `{player.Name}: {data} {tostring(print)}`)
end)
task.spawn(function()
	while true do
		task.wait(0.1)
		board:SetAttribute("Waited", beats)
	end
end)
task.delay(0.2, function()
	local thread = coroutine.create(function(a)
		return a + coroutine.yield(a + 1)
	end)
	local _, first = coroutine.resume(thread, 1)
	local _, last = coroutine.resume(thread, 5)
	board:SetAttribute("Resumed", first * last)
end)
