"""MarketplaceService and BadgeService, without items and badges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import printed
from tests.engine.services.bench import bench, output
from tests.engine.torture import Plan, torture

PROMPTS = """
local market = game:GetService("MarketplaceService")
market.ProcessReceipt = function() error("a receipt") end
for _, kind in { "", "Bundle", "GamePass", "Product" } do
    market["Prompt" .. kind .. "PurchaseFinished"]:Connect(function(who, id, isPurchased)
        print(math.round(time() * 60), kind, typeof(who), id, isPurchased)
    end)
end
market.PromptSubscriptionPurchaseFinished:Connect(function(who, id, isPurchased)
    print(math.round(time() * 60), "Subscription", typeof(who), id, isPurchased)
end)
market.PromptPremiumPurchaseFinished:Connect(function(...)
    print(math.round(time() * 60), "Premium", ...)
end)
game.Players.PlayerAdded:Connect(function(player)
    task.wait(0.05)
    market:PromptPurchase(player, 1)
    market:PromptBundlePurchase(player, 2)
    market:PromptGamePassPurchase(player, 3)
    market:PromptProductPurchase(player, 4)
    market:PromptSubscriptionPurchase(player, "EXP-5")
    market:PromptPremiumPurchase(player)
    print(math.round(time() * 60), "asked")
end)
"""


@pytest.mark.thorough
def test_prompt_ends_in_the_next_tick_without_a_purchase_even_after_a_restore(
    tmp_path: Path,
) -> None:
    (tmp_path / "main.lua").write_text(PROMPTS)
    (tmp_path / "world.toml").write_text('name = "market"')
    run = torture(tmp_path, Plan().join(0, "Ada"), ticks=7, saves=(1, 4, 5))
    assert printed(run) == [
        "3\tasked",
        "4\t\tInstance\t1\tfalse",
        "4\tBundle\tInstance\t2\tfalse",
        "4\tGamePass\tInstance\t3\tfalse",
        "4\tProduct\tnumber\t4\tfalse",
        "4\tSubscription\tInstance\tEXP-5\tfalse",
        "4\tPremium",
    ]


def test_players_own_no_assets_badges_or_passes() -> None:
    world = bench("", players=["Ann"])
    world.run(
        """
        local market, badges = game.MarketplaceService, game:GetService('BadgeService')
        local ann = Players.Ann
        print(market:UserOwnsGamePassAsync(ann.UserId, 5), market:PlayerOwnsAsset(ann, 5))
        print(market:PlayerOwnsBundle(ann, 5), market:PlayerOwnsBundleAsync(ann, 5))
        local status = market:GetUserSubscriptionStatusAsync(ann, 'EXP-5')
        print(status.IsSubscribed, status.IsRenewing)
        print(#market:RankProductsAsync({}), #market:RecommendTopProductsAsync({}))
        local info = market:GetProductInfo(5)
        print(info.AssetId, info.Name == '', info.PriceInRobux, info.IsForSale, info.Creator.Id)
        print(badges:UserHasBadgeAsync(ann.UserId, 5), badges:AwardBadge(ann.UserId, 5))
        print(badges:GetBadgeInfoAsync(5).IsEnabled)
        """
    )
    lines = world.printed()
    assert lines[:4] == ["false\tfalse"] * 3 + ["0\t0"]
    assert lines[4:] == ["5\ttrue\t0\tfalse\t0", "false\tfalse", "false"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("PromptPurchase, market, market, 1", "#1 to 'PromptPurchase' (Player expected"),
        ("PromptSubscriptionPurchase, market, ann", "#2 to 'PromptSubscriptionPurchase' (string"),
        ("PromptPremiumPurchase, market, 1", "#1 to 'PromptPremiumPurchase' (Player expected"),
        ("PromptPurchase, market, ann, 'x'", "#2 to 'PromptPurchase' (number expected"),
        ("UserOwnsGamePassAsync, market, 1", "#2 to 'UserOwnsGamePassAsync' (number expected"),
    ],
)
def test_wrong_arguments_are_named(call: str, error: str) -> None:
    world = bench("", players=["Ann"])
    world.run(
        f"local market, ann = game.MarketplaceService, Players.Ann print(pcall(market.{call}))"
    )
    (line,) = world.printed()
    assert error in line


def test_error_of_an_unknown_member_suggests_the_nearest() -> None:
    source = "print(pcall(function() game.MarketplaceService:PromptGamepassPurchase() end))"
    (line,) = output(source)
    assert "did you mean 'PromptGamePassPurchase'?" in line
