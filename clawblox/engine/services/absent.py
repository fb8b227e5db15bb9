"""Services for features that worlds lack: purchases, badges, analytics and the GUI of clients.

Players cannot own or buy items: a prompt ends in the next tick without a purchase, as if the player
had declined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import instance_argument, number_argument, text_argument
from clawblox.engine.instances.spec import methods_in
from clawblox.engine.scheduler import TICK_S
from clawblox.engine.services.remote_events import player_argument
from clawblox.luau import LuaTable

_FINISH: Final = "MarketplaceService.finish"


def finish(service: Any = None, event: Any = None, *values: Any) -> Any:
    """Fire the event at the end of a prompt, in its own thread."""
    instance_argument(service, 1, "finish").fire(event, *values)
    return ()


def _prompt(market: Instance, method: str, player: Any, ident: Any) -> Any:
    """End a prompt in the next tick; product purchases identify the player by id."""
    asked = player_argument(player, 1, method)
    number = number_argument(ident, 2, method)
    who = asked.read("UserId") if method == "PromptProductPurchase" else asked
    return _finish_later(market, method, who, number, False)


def _finish_later(market: Instance, method: str, *values: Any) -> Any:
    scheduler, function = market.model.scheduler, market.model.host.functions[_FINISH]
    scheduler.start_later(TICK_S, function, (market, f"{method}Finished", *values))
    return ()


def prompt_purchase(market: Instance, player: Any, asset: Any) -> Any:
    """``PromptPurchase(player, asset)``, ending without a purchase in the next tick."""
    return _prompt(market, "PromptPurchase", player, asset)


def prompt_bundle_purchase(market: Instance, player: Any, bundle: Any) -> Any:
    """``PromptBundlePurchase(player, bundle)``, ending without a purchase in the next tick."""
    return _prompt(market, "PromptBundlePurchase", player, bundle)


def prompt_game_pass_purchase(market: Instance, player: Any, game_pass: Any) -> Any:
    """``PromptGamePassPurchase(player, gamePass)``, ending without a purchase in the next tick."""
    return _prompt(market, "PromptGamePassPurchase", player, game_pass)


def prompt_product_purchase(market: Instance, player: Any, product: Any) -> Any:
    """``PromptProductPurchase(player, product)``, ending without a purchase in the next tick."""
    return _prompt(market, "PromptProductPurchase", player, product)


def prompt_subscription_purchase(market: Instance, player: Any, subscription: Any) -> Any:
    """``PromptSubscriptionPurchase(player, subscription)``, ending in the next tick."""
    method = "PromptSubscriptionPurchase"
    asked, name = player_argument(player, 1, method), text_argument(subscription, 2, method)
    return _finish_later(market, method, asked, name, False)


def prompt_premium_purchase(market: Instance, player: Any) -> Any:
    """``PromptPremiumPurchase(player)``, ending without a purchase in the next tick."""
    player_argument(player, 1, "PromptPremiumPurchase")
    return _finish_later(market, "PromptPremiumPurchase")


def user_owns_game_pass_async(market: Instance, user_id: Any, game_pass: Any) -> Any:
    """``UserOwnsGamePassAsync(userId, gamePass)``: return false."""
    number_argument(user_id, 1, "UserOwnsGamePassAsync")
    number_argument(game_pass, 2, "UserOwnsGamePassAsync")
    return False


def player_owns_asset(market: Instance, player: Any, asset: Any) -> Any:
    """``PlayerOwnsAsset(player, asset)``: return false."""
    player_argument(player, 1, "PlayerOwnsAsset")
    number_argument(asset, 2, "PlayerOwnsAsset")
    return False


def player_owns_bundle(market: Instance, player: Any, bundle: Any) -> Any:
    """``PlayerOwnsBundle(player, bundle)``: return false."""
    player_argument(player, 1, "PlayerOwnsBundle")
    number_argument(bundle, 2, "PlayerOwnsBundle")
    return False


def get_user_subscription_status_async(market: Instance, player: Any, subscription: Any) -> Any:
    """``GetUserSubscriptionStatusAsync(player, subscription)``: neither active nor renewed."""
    player_argument(player, 1, "GetUserSubscriptionStatusAsync")
    text_argument(subscription, 2, "GetUserSubscriptionStatusAsync")
    return LuaTable({"IsSubscribed": False, "IsRenewing": False})


def rank_products_async(market: Instance, products: Any) -> Any:
    """``RankProductsAsync(products)``: return an empty list."""
    return LuaTable()


def recommend_top_products_async(market: Instance, types: Any) -> Any:
    """``RecommendTopProductsAsync(types)``: return an empty list."""
    return LuaTable()


def get_product_info(market: Instance, product: Any, info_type: Any) -> Any:
    """``GetProductInfo(product, infoType)``: unnamed, free, and not for sale."""
    number = number_argument(product, 1, "GetProductInfo")
    return LuaTable(
        {
            "AssetId": number,
            "ProductId": number,
            "Name": "",
            "Description": "",
            "PriceInRobux": 0.0,
            "IsForSale": False,
            "Creator": LuaTable({"Id": 0.0, "Name": ""}),
        }
    )


def award_badge(badges: Instance, user_id: Any, badge: Any) -> Any:
    """``AwardBadge(userId, badge)``: return false without awarding the badge."""
    number_argument(user_id, 1, "AwardBadge")
    number_argument(badge, 2, "AwardBadge")
    return False


def user_has_badge_async(badges: Instance, user_id: Any, badge: Any) -> Any:
    """``UserHasBadgeAsync(userId, badge)``: return false."""
    number_argument(user_id, 1, "UserHasBadgeAsync")
    number_argument(badge, 2, "UserHasBadgeAsync")
    return False


def get_badge_info_async(badges: Instance, badge: Any) -> Any:
    """``GetBadgeInfoAsync(badge)``: unnamed and disabled."""
    number_argument(badge, 1, "GetBadgeInfoAsync")
    return LuaTable({"Name": "", "Description": "", "IconImageId": 0.0, "IsEnabled": False})


_IDLE_METHODS: Final[Mapping[str, str]] = {
    "AnalyticsService": (
        "LogCustomEvent LogEconomyEvent LogFunnelStepEvent LogOnboardingFunnelStepEvent "
        "LogProgressionCompleteEvent LogProgressionEvent LogProgressionFailEvent "
        "LogProgressionStartEvent"
    ),
    "ContentProvider": "PreloadAsync",
    "StarterGui": "SetCore SetCoreGuiEnabled",
}


def do_nothing(service: Instance, *values: Any) -> Any:
    """Return no results."""
    return ()


def add_absent(model: DataModel) -> None:
    """Add the methods of the services, and let snapshots store prompts."""
    for name, methods in _IDLE_METHODS.items():
        model.classes.add(name, methods=dict.fromkeys(methods.split(), do_nothing))
    model.host.raw(_FINISH)(finish)
    market = methods_in(globals(), "market")
    model.classes.add(
        "MarketplaceService",
        methods={
            **market,
            "PlayerOwnsAssetAsync": player_owns_asset,
            "PlayerOwnsBundleAsync": player_owns_bundle,
            "GetProductInfoAsync": get_product_info,
        },
    )
    badges = methods_in(globals(), "badges")
    model.classes.add("BadgeService", methods={**badges, "AwardBadgeAsync": award_badge})
