-- N13: animations: tracks, lengths, looping, events.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Players = game:GetService("Players")

Players.PlayerAdded:Connect(function(player)
	local humanoid = player.Character.Humanoid
	local function load(id)
		local animation = Instance.new("Animation")
		animation.AnimationId = id
		return humanoid:LoadAnimation(animation)
	end
	for name, length in { fire_rifle = 0.16, fire_shotgun = 0.22, reload_rifle = 1.15, reload_shotgun = 1.35, idle_default = 0.9, walk_default = 1.2, dance = 0.5 } do
		Check.near("length of " .. name, load("local://" .. name).Length, length, 1e-6)
	end
	Check.fails("an empty id", "AnimationId is empty", load, "")
	local animator = humanoid:FindFirstChildOfClass("Animator")
	Check.that("one Animator is made", animator ~= nil)

	local track = load("local://fire_rifle")
	Check.equal("it does not play yet", track.IsPlaying, false)
	local order = {}
	track.Stopped:Connect(function()
		table.insert(order, "Stopped")
	end)
	track.Ended:Connect(function()
		table.insert(order, "Ended")
	end)
	track:Play()
	Check.equal("it plays", track.IsPlaying, true)
	Check.equal("and is listed", #animator:GetPlayingAnimationTracks(), 1)
	task.wait(0.1)
	Check.that("its time advances", track.TimePosition > 0.05 and track.TimePosition < 0.16)
	task.wait(0.5)
	Check.list("it ends at its length", order, { "Stopped", "Ended" })
	Check.equal("and plays no more", track.IsPlaying, false)

	local walk = load("local://walk_default")
	walk.Looped = true
	walk:Play(0, 1, 2)
	Check.equal("speed", walk.Speed, 2)
	task.wait(2)
	Check.equal("a looped one goes on", walk.IsPlaying, true)
	Check.that("and begins again", walk.TimePosition <= 1.2)
	walk:AdjustSpeed(0.5)
	Check.equal("AdjustSpeed", walk.Speed, 0.5)
	walk:AdjustWeight(0.25, 0)
	task.wait(0.1)
	Check.near("AdjustWeight", walk.WeightTarget, 0.25, 1e-6)
	walk:Stop(0)
	task.wait(0.1)
	Check.equal("Stop", walk.IsPlaying, false)
	Check.done()
end)
