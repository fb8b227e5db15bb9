local run = game:GetService("RunService")
local floor = Instance.new("Part", workspace)
floor.Name, floor.Anchored = "Floor", true
floor.Size = Vector3.new(40, 1, 40)
local ball = Instance.new("Part", workspace)
ball.Name, ball.Shape = "Ball", Enum.PartType.Ball
ball.Position = Vector3.new(0, 5, 0)
ball:SetAttribute("Path", {1, 2, Vector3.new(1, 2, 3)})
ball:AddTag("Round")
local beats = 0
run.Heartbeat:Connect(function() beats = beats + 1 end)
game:GetService("AgentInputService").InputReceived:Connect(function(player, kind, data)
    print(player.Name, kind, data and data.n)
end)
task.spawn(function()
    while true do
        task.wait(0.1)
        print("beats", beats, #game:GetService("CollectionService"):GetTagged("Round"))
    end
end)
