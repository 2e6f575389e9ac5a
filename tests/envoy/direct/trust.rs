//! Who is trusted: by secret, by address, by route and by listener; and who is not, whatever he sends.

use warmroute_harness::config::listener;

use super::*;

const PIN: (&str, &str) = ("x-warmroute-target-worker", "pod-9");

/// Whether a request is heard: then its unknown worker is refused.
async fn is_heard(world: &World, headers: &[(&str, &str)]) -> Result<bool> {
    let reply = stranger(world, &[headers, &[PIN]].concat()).await?;
    let is_heard = reply.header("x-warmroute-reason") == Some("unknown_worker");
    anyhow::ensure!(is_heard == (reply.status == 503), "status {}: {}", reply.status, reply.text());
    Ok(is_heard)
}

#[tokio::test]
async fn a_secret_counts_whole_and_once_and_goes_no_further() -> Result<()> {
    let secrets = json!({ "trust": { "secretHeader": "x-hop-secret", "secrets": [SECRET.1, "another secret one"] } });
    let world = world("strict", secrets).await?;
    let cases: &[(&[(&str, &str)], bool)] = &[
        (&[SECRET], true),
        (&[("X-Hop-Secret", SECRET.1)], true),
        (&[("x-hop-secret", "another secret one")], true),
        (&[], false),
        (&[("x-hop-secret", "")], false),
        (&[("x-hop-secret", "0123456789abcde")], false),
        (&[("x-hop-secret", "0123456789abcdef0")], false),
        (&[("x-hop-secret", "0123456789ABCDEF")], false),
        (&[SECRET, SECRET], false),
        (&[SECRET, ("x-hop-secret", "wrong")], false),
        (&[("x-hop-secret", "wrong"), SECRET], false),
        (&[("x-hop-secret", "0123456789abcdef,another secret one")], false),
    ];
    for (headers, want) in cases {
        assert_eq!(is_heard(&world, headers).await?, *want, "{headers:?}");
    }
    assert!(world.arrived().iter().all(|record| record.hints.is_empty()), "{:?}", world.arrived());
    // Taken off where nothing else is looked at, too.
    let wrong = [("x-hop-secret", "wrong")];
    let reply = world.client().send("GET", "/echo", &wrong, body("")).await?;
    assert_eq!(reply.json()?["headers"].get("x-hop-secret"), None);
    // The first is given up: whoever has only that is a stranger.
    let mut rotated = world.plugin.clone();
    rotated["trust"]["secrets"] = json!(["another secret one", "the newest secret"]);
    assert!(world.envoy.apply_plugin_config(&rotated).await?);
    let after: &[(&str, bool)] = &[(SECRET.1, false), ("another secret one", true), ("the newest secret", true)];
    for (secret, want) in after {
        assert_eq!(is_heard(&world, &[("x-hop-secret", secret)]).await?, *want, "{secret}");
    }
    world.end().await
}

#[tokio::test]
async fn without_trust_nobody_is_heard() -> Result<()> {
    let world = world("strict", json!({ "trust": {} })).await?;
    assert!(!is_heard(&world, &[SECRET]).await?);
    world.end().await
}

/// What a client may write to be taken for somebody else.
const FORGED: &[&str] = &[
    "10.7.0.1",
    "10.7.0.1:4711",
    "192.0.2.1, 10.7.0.1",
    "10.7.0.1, 192.0.2.1",
    "::ffff:10.7.0.1",
    "[::ffff:10.7.0.1]:4711",
    "\"10.7.0.1:4711\"",
    "for=10.7.0.1",
];

#[tokio::test]
async fn nobody_is_trusted_for_the_address_that_he_writes() -> Result<()> {
    // Whether Envoy believes that header or not, and if so, how many proxies it lets write into it.
    for (use_remote_address, hops) in [(false, 0), (true, 0), (true, 1), (false, 1)] {
        let trust = json!({ "trust": { "sourceRanges": ["10.7.0.0/16"] } });
        let world = world_behind("strict", trust, move |envoy| {
            envoy.edit(move |bootstrap| {
                let manager = http_manager(bootstrap);
                manager["use_remote_address"] = use_remote_address.into();
                manager["xff_num_trusted_hops"] = hops.into();
            })
        })
        .await?;
        for forged in FORGED {
            let headers = [
                ("x-forwarded-for", *forged),
                ("x-real-ip", "10.7.0.1"),
                ("forwarded", "for=10.7.0.1"),
                ("x-envoy-external-address", "10.7.0.1"),
            ];
            assert!(
                !is_heard(&world, &headers).await?,
                "use_remote_address {use_remote_address}, {hops} hops: {forged}"
            );
        }
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_caller_is_trusted_for_the_address_of_its_connection() -> Result<()> {
    for use_remote_address in [false, true] {
        let trust = json!({ "trust": { "sourceRanges": ["10.7.0.0/16", "127.0.0.0/8"] } });
        let world = world_behind("strict", trust, move |envoy| {
            envoy.edit(move |bootstrap| http_manager(bootstrap)["use_remote_address"] = use_remote_address.into())
        })
        .await?;
        assert!(is_heard(&world, &[]).await?);
        // Without `use_remote_address` the header hides who calls: then nobody is known, and that is the safe side.
        assert_eq!(is_heard(&world, &[("x-forwarded-for", "192.0.2.1")]).await?, use_remote_address);
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_route_or_a_listener_may_be_trusted_by_its_metadata() -> Result<()> {
    let trust = || json!({ "trust": { "metadata": true } });
    let metadata = |trusted: Value| json!({ "filter_metadata": { "warmroute": { "trusted": trusted } } });
    let world = world_behind("strict", trust(), move |envoy| {
        envoy.edit(move |bootstrap| {
            let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
            let default = routes[0].clone();
            let marked = [("yes", json!(true)), ("text", json!("true")), ("no", json!(false)), ("number", json!(1))];
            let mut all: Vec<Value> = marked
                .into_iter()
                .map(|(name, trusted)| {
                    let mut route = default.clone();
                    let header = json!([{ "name": "x-route", "string_match": { "exact": name } }]);
                    route["match"] = json!({ "prefix": "/", "headers": header });
                    route["metadata"] = metadata(trusted);
                    route
                })
                .collect();
            all.push(default);
            *routes = all.into();
        })
    })
    .await?;
    for (route, want) in [("yes", true), ("text", true), ("no", false), ("number", false), ("other", false)] {
        assert_eq!(is_heard(&world, &[("x-route", route)]).await?, want, "{route}");
    }
    // Metadata count where they are configured to.
    let mut plugin = world.plugin.clone();
    plugin["trust"] = json!({});
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    assert!(!is_heard(&world, &[("x-route", "yes")]).await?);
    world.end().await?;
    let world = world_behind("strict", trust(), move |envoy| {
        envoy.edit(move |bootstrap| listener(bootstrap)["metadata"] = metadata(json!(true)))
    })
    .await?;
    assert!(is_heard(&world, &[]).await?);
    world.end().await
}

#[tokio::test]
async fn a_route_that_a_client_chose_by_naming_a_model_is_not_trusted_for_that() -> Result<()> {
    const MODEL: &str = "x-gateway-model-name";
    let config = json!({ "trust": { "metadata": true }, "modelHeader": MODEL });
    let world = world_behind("strict", config, |envoy| {
        envoy.edit(|bootstrap| {
            let routes = &mut http_manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"];
            let default = routes[0].clone();
            let mut inner = default.clone();
            inner["match"]["headers"] = json!([{ "name": MODEL, "string_match": { "exact": "inner" } }]);
            inner["metadata"] = json!({ "filter_metadata": { "warmroute": { "trusted": true } } });
            *routes = json!([inner, default]);
        })
    })
    .await?;
    assert!(!is_heard(&world, &[(MODEL, "inner")]).await?);
    world.end().await
}
