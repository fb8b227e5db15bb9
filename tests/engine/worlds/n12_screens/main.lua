-- N8, N12: the classes of the GUI, their defaults, text and alignment.
local Check = require(game:GetService("ServerScriptService"):WaitForChild("Check"))

local frame, label, button = Instance.new("Frame"), Instance.new("TextLabel"), Instance.new("TextButton")
Check.equal("Frame.Size", frame.Size, UDim2.new(0, 100, 0, 100))
Check.equal("Frame.Position", frame.Position, UDim2.new(0, 0, 0, 0))
Check.equal("AnchorPoint.X", frame.AnchorPoint.X, 0)
Check.equal("AnchorPoint.Y", frame.AnchorPoint.Y, 0)
Check.equal("ZIndex", frame.ZIndex, 1)
Check.equal("Visible", frame.Visible, true)
Check.equal("background", frame.BackgroundColor3, Color3.new(1, 1, 1))
Check.equal("border", frame.BorderColor3, Color3.new(0.1, 0.1, 0.1))
Check.equal("border size", frame.BorderSizePixel, 1)
Check.equal("label background", label.BackgroundTransparency, 1)
Check.equal("text colour", label.TextColor3, Color3.new(0, 0, 0))
Check.equal("TextSize", label.TextSize, 14)
label.TextSize = 0
Check.equal("TextSize is at least 1", label.TextSize, 1)
Check.equal("alignment reads as a string", label.TextXAlignment, "Center")
label.TextXAlignment = Enum.TextXAlignment.Left
Check.equal("an Enum item is accepted", label.TextXAlignment, "Left")
label.TextXAlignment = "Right"
Check.equal("a string too", label.TextXAlignment, "Right")
Check.equal("Font", label.Font, "SourceSans")
label.Font = Enum.Font.GothamBold
Check.equal("Font from an Enum item", label.Font, "GothamBold")
local screen = Instance.new("ScreenGui")
Check.equal("DisplayOrder", screen.DisplayOrder, 0)
Check.equal("Enabled", screen.Enabled, true)
Check.equal("ResetOnSpawn", screen.ResetOnSpawn, true)
local board = Instance.new("BillboardGui")
Check.equal("billboard size", board.Size, UDim2.new(0, 100, 0, 50))
Check.equal("StudsOffset", board.StudsOffset, Vector3.new(0, 0, 0))
Check.equal("AlwaysOnTop", board.AlwaysOnTop, false)
for _, event in { "MouseButton1Click", "MouseButton1Down", "MouseButton1Up", "MouseEnter", "MouseLeave" } do
	Check.equal("a button has " .. event, typeof(button[event]), "RBXScriptSignal")
end
local corner = Instance.new("UICorner")
Check.equal("CornerRadius at first", corner.CornerRadius, UDim.new(0, 8))
corner.CornerRadius = UDim.new(0, 8)
Check.equal("CornerRadius", corner.CornerRadius.Offset, 8)
for _, name in { "TextScaled", "TextStrokeTransparency", "TextYAlignment", "TextTransparency", "Text" } do
	Check.that("a label has " .. name, label[name] ~= nil)
end
Check.equal("labels are no buttons", label:IsA("GuiButton"), false)
Check.done()
