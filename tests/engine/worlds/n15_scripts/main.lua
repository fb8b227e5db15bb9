-- N15: the script tree: modules, folders, when scripts start, environments.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))
local Scripts = game:GetService("ServerScriptService")

Check.equal("the tree exists before main", Scripts.lib.ClassName, "Folder")
Check.equal("X.module.lua is a ModuleScript", Scripts.lib.Counter.ClassName, "ModuleScript")
Check.equal("X.server.lua is a Script", Scripts.First.ClassName, "Script")
Check.equal("X.lua is a Script", Workspace.Ground.ClassName, "Script")
Check.equal("no script has run", _G.order, nil)

local counter = require(Scripts.lib.Counter)
Check.equal("a module is cached", require(Scripts.lib.Counter), counter)
Check.equal("it runs once", counter.loads(), 1)
Check.equal("a module has its own script", counter.name, "Counter")
Check.fails("require wants a module", "require expects a ModuleScript", require, Scripts.First)
Check.fails("circles", "cyclic module dependency detected", require, Scripts.lib.RoundA)
local before = tick()
Check.equal("a module may wait while it loads", require(Scripts.lib.Sleeper), "slept")
Check.near("and who requires it waits", tick() - before, 0.1, 1e-9)
Check.fails("its error is ours", "broken on purpose", require, Scripts.lib.Broken)
mine = "main" -- a global of this script alone

task.spawn(function()
	task.wait(0.1)
	Check.list("Workspace first, then ServerScriptService, depth first", _G.order, { "Ground", "First", "Second", "Deep" })
	Check.equal("globals are apart", _G.sawGlobal, "nil")
	local late = Instance.new("Script")
	late.Name = "Late"
	late.Source = "_G.late = tick() _G.lateName = script.Name"
	local made = tick()
	late.Parent = Workspace
	task.wait(0.1)
	Check.that("a script with Source runs in the next tick", _G.late ~= nil and _G.late - made <= 2 / 60)
	Check.equal("with its own script", _G.lateName, "Late")
	local disabled = Instance.new("Script")
	disabled.Disabled = true
	disabled.Source = "_G.disabled = (_G.disabled or 0) + 1"
	disabled.Parent = Workspace
	task.wait(0.1)
	Check.equal("a disabled one waits", _G.disabled, nil)
	disabled.Disabled = false
	task.wait(0.1)
	Check.equal("and runs when it is enabled", _G.disabled, 1)
	Check.done()
end)
