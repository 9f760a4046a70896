//! Scenarios of fe2o3-amqp against a node. Prints "NAME ok" or "NAME failed: WHY" for each one.
//!
//! Arguments: URL USER PASSWORD MECHANISM SCENARIO... (no user: anonymous). The space has the anycast address "anycast",
//! the stream "stream", the queue "other", and a queue for each scenario, by its name.

use std::fmt::Debug;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::scram::{SaslScramSha1, SaslScramSha256, SaslScramSha512};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::{Error, ErrorCondition, Fields, ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, Data, Header, Message, MessageAnnotations, Modified, Outcome, Properties,
    Source, Target,
};
use fe2o3_amqp::types::primitives::{Binary, SimpleValue, Symbol, Value};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sendable, Sender, Session};

const PATIENCE: Duration = Duration::from_secs(20);

type Done = Result<(), String>;

/// What went wrong, in words.
fn why(problem: impl Debug) -> String {
    format!("{problem:?}")
}

fn same<T: PartialEq + Debug>(expected: T, found: T) -> Done {
    if expected == found {
        return Ok(());
    }
    Err(format!("expected {expected:?}, found {found:?}"))
}

struct Place {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    queue: String,
    links: u32,
}

impl Place {
    fn link(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }

    async fn sender(&mut self, address: &str) -> Result<Sender, String> {
        let name = self.link();
        Sender::attach(&mut self.session, name, address).await.map_err(why)
    }

    async fn receiver(&mut self, address: &str) -> Result<Receiver, String> {
        let name = self.link();
        Receiver::attach(&mut self.session, name, address).await.map_err(why)
    }

    /// A receiver that grants credit when it is told to only.
    async fn patient(&mut self, address: &str, mode: ReceiverSettleMode) -> Result<Receiver, String> {
        let name = self.link();
        Receiver::builder()
            .name(name)
            .source(address)
            .receiver_settle_mode(mode)
            .credit_mode(CreditMode::Manual)
            .attach(&mut self.session)
            .await
            .map_err(why)
    }

    /// Sends texts, which must be accepted.
    async fn fill(&mut self, address: &str, texts: &[&str]) -> Done {
        let mut sender = self.sender(address).await?;
        for text in texts {
            accepted(sender.send(text.to_string()).await.map_err(why)?)?;
        }
        sender.close().await.map_err(why)
    }
}

fn accepted(outcome: Outcome) -> Done {
    if outcome.is_accepted() {
        return Ok(());
    }
    Err(why(outcome))
}

async fn next(receiver: &mut Receiver) -> Result<Delivery<Body<Value>>, String> {
    receiver.recv::<Body<Value>>().await.map_err(why)
}

fn text(delivery: &Delivery<Body<Value>>) -> Result<String, String> {
    match delivery.body() {
        Body::Value(AmqpValue(Value::String(found))) => Ok(found.clone()),
        other => Err(why(other)),
    }
}

/// Takes in texts and accepts them.
async fn take(receiver: &mut Receiver, texts: &[&str]) -> Done {
    for expected in texts {
        let delivery = next(receiver).await?;
        same(expected.to_string(), text(&delivery)?)?;
        receiver.accept(&delivery).await.map_err(why)?;
    }
    Ok(())
}

async fn properties(place: &mut Place) -> Done {
    let mut fields = Fields::new();
    fields.insert(Symbol::from("acme:why"), Value::from("test"));
    let name = place.link();
    // The node tells the properties of a queue in those of its attach.
    let receiver = Receiver::builder()
        .name(name)
        .source(place.queue.clone())
        .add_desired_capabilities("enmasse:address-type")
        .properties(fields)
        .attach(&mut place.session)
        .await
        .map_err(why)?;
    let kind = receiver.properties(|told| told.as_ref().and_then(|f| f.get("enmasse:address-type").cloned()));
    same(Some(Value::from("queue")), kind)?;
    receiver.close().await.map_err(why)
}

async fn exchange(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    let mut sender = place.sender(&queue).await?;
    let mut receiver = place.receiver(&queue).await?;
    for n in 0..50u64 {
        let message = Message::builder()
            .header(Header::builder().durable(n % 2 == 0).build())
            .message_annotations(MessageAnnotations::builder().insert("x-opt-n", n).build())
            .properties(Properties::builder().message_id(n).subject(format!("s{n}")).build())
            .application_properties(ApplicationProperties::builder().insert("n", n).build())
            .data(Binary::from(format!("body {n}").into_bytes()))
            .build();
        accepted(sender.send(message).await.map_err(why)?)?;
    }
    for n in 0..50u64 {
        let delivery = next(&mut receiver).await?;
        let message = delivery.message();
        same(n % 2 == 0, message.header.as_ref().is_some_and(|header| header.durable))?;
        let properties = message.properties.as_ref().ok_or("no properties")?;
        same(Some(format!("s{n}")), properties.subject.clone())?;
        same(Some(n.into()), properties.message_id.clone())?;
        let own = message
            .application_properties
            .as_ref()
            .ok_or("no application properties")?;
        same(Some(&SimpleValue::Ulong(n)), own.0.get("n"))?;
        let body = Binary::from(format!("body {n}").into_bytes());
        match &message.body {
            Body::Data(parts) => same(vec![&Data(body)], parts.iter().collect())?,
            other => return Err(why(other)),
        }
        receiver.accept(&delivery).await.map_err(why)?;
    }
    Ok(())
}

fn attempts(delivery: &Delivery<Body<Value>>) -> u32 {
    delivery
        .message()
        .header
        .as_ref()
        .map_or(0, |header| header.delivery_count)
}

async fn outcomes(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    place.fill(&queue, &["again"]).await?;
    let mut receiver = place.patient(&queue, ReceiverSettleMode::First).await?;
    receiver.set_credit(1).await.map_err(why)?;
    let first = next(&mut receiver).await?;
    receiver.release(&first).await.map_err(why)?;
    receiver.set_credit(1).await.map_err(why)?;
    let second = next(&mut receiver).await?;
    same(0, attempts(&second))?;
    let mut notes = Fields::new();
    notes.insert(Symbol::from("x-opt-why"), Value::from("tired"));
    receiver.modify(&second, modified(Some(notes))).await.map_err(why)?;
    receiver.set_credit(1).await.map_err(why)?;
    let third = next(&mut receiver).await?;
    same(1, attempts(&third))?;
    let notes = third.message().message_annotations.as_ref().ok_or("no annotations")?;
    same(
        Some(&Value::from("tired")),
        notes.0.get(&OwnedKey::from(Symbol::from("x-opt-why"))),
    )?;
    receiver.reject(&third, reason()).await.map_err(why)?;
    place.fill(&queue, &["last"]).await?;
    receiver.set_credit(1).await.map_err(why)?;
    take(&mut receiver, &["last"]).await
}

fn modified(message_annotations: Option<Fields>) -> Modified {
    Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations,
    }
}

fn reason() -> Error {
    let mut info = Fields::new();
    info.insert(Symbol::from("field"), Value::from("amount"));
    Error::new(
        ErrorCondition::Custom(Symbol::from("acme:invalid")),
        Some("no amount".into()),
        Some(info),
    )
}

async fn direct_outcomes(place: &mut Place) -> Done {
    let mut receiver = place.receiver("anycast").await?;
    let mut sender = place.sender("anycast").await?;
    let mut found = Vec::new();
    for n in 0..4 {
        let sent = sender.send_batchable("m".to_string()).await.map_err(why)?;
        let delivery = next(&mut receiver).await?;
        match n {
            0 => receiver.accept(&delivery).await,
            1 => receiver.release(&delivery).await,
            2 => receiver.modify(&delivery, modified(None)).await,
            _ => receiver.reject(&delivery, reason()).await,
        }
        .map_err(why)?;
        found.push(sent.await.map_err(why)?);
    }
    match &found[..] {
        [Outcome::Accepted(_), Outcome::Released(_), Outcome::Modified(_), Outcome::Rejected(rejected)] => {
            same(Some(&reason()), rejected.error.as_ref())
        }
        other => Err(why(other)),
    }
}

async fn settled(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    let mut sender = place.sender(&queue).await?;
    let message = Sendable::builder().message("a".to_string()).settled(true).build();
    accepted(sender.send(message).await.map_err(why)?)?;
    for (mode, body) in [(SenderSettleMode::Settled, "b"), (SenderSettleMode::Unsettled, "c")] {
        let name = place.link();
        let mut sender = Sender::builder()
            .name(name)
            .target(queue.as_str())
            .sender_settle_mode(mode)
            .attach(&mut place.session)
            .await
            .map_err(why)?;
        accepted(sender.send(body.to_string()).await.map_err(why)?)?;
    }
    let name = place.link();
    let mut receiver = Receiver::builder()
        .name(name)
        .source(queue.as_str())
        .sender_settle_mode(SenderSettleMode::Settled)
        .attach(&mut place.session)
        .await
        .map_err(why)?;
    for body in ["a", "b", "c"] {
        same(body.to_string(), text(&next(&mut receiver).await?)?)?;
    }
    receiver.close().await.map_err(why)
}

async fn settle_second(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    place.fill(&queue, &["a", "b"]).await?;
    let mut receiver = place.patient(&queue, ReceiverSettleMode::Second).await?;
    receiver.set_credit(2).await.map_err(why)?;
    take(&mut receiver, &["a", "b"]).await
}

async fn credit(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    place.fill(&queue, &["a", "b", "c"]).await?;
    let mut receiver = place.patient(&queue, ReceiverSettleMode::First).await?;
    receiver.set_credit(2).await.map_err(why)?;
    take(&mut receiver, &["a", "b"]).await?;
    receiver.set_credit(1).await.map_err(why)?;
    take(&mut receiver, &["c"]).await
}

async fn drain(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    place.fill(&queue, &["a"]).await?;
    let mut receiver = place.patient(&queue, ReceiverSettleMode::First).await?;
    receiver.set_credit(10).await.map_err(why)?;
    take(&mut receiver, &["a"]).await?;
    receiver.drain().await.map_err(why)?;
    receiver.set_credit(1).await.map_err(why)?;
    place.fill(&queue, &["b"]).await?;
    take(&mut receiver, &["b"]).await
}

async fn large_message(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    let content = "0123456789abcdef".repeat(1 << 18);
    let mut sender = place.sender(&queue).await?;
    accepted(sender.send(content.clone()).await.map_err(why)?)?;
    let mut receiver = place.receiver(&queue).await?;
    let delivery = next(&mut receiver).await?;
    same(true, text(&delivery)? == content)?;
    receiver.accept(&delivery).await.map_err(why)
}

async fn request_reply(place: &mut Place) -> Done {
    let name = place.link();
    let mut replies = Receiver::builder()
        .name(name)
        .source(Source::builder().dynamic(true).build())
        .attach(&mut place.session)
        .await
        .map_err(why)?;
    let address = replies
        .source()
        .as_ref()
        .and_then(|source| source.address.clone())
        .ok_or("no address")?;
    let mut requests = place.receiver("anycast").await?;
    let mut asking = place.sender("anycast").await?;
    let question = Message::builder()
        .properties(
            Properties::builder()
                .message_id("q-1".to_string())
                .reply_to(address)
                .build(),
        )
        .value("ping".to_string())
        .build();
    let sent = asking.send_batchable(question).await.map_err(why)?;
    let request = next(&mut requests).await?;
    requests.accept(&request).await.map_err(why)?;
    accepted(sent.await.map_err(why)?)?;
    let asked = request.message().properties.clone().ok_or("no properties")?;
    let to = asked.reply_to.ok_or("no reply-to")?;
    let answer = || {
        Message::builder()
            .properties(
                Properties::builder()
                    .to(to.clone())
                    .correlation_id("q-1".to_string())
                    .build(),
            )
            .value("pong".to_string())
            .build()
    };
    // By the anonymous terminus, and by a link of its own.
    for target in [Target::builder().build(), Target::builder().address(to.clone()).build()] {
        let name = place.link();
        let mut sender = Sender::builder()
            .name(name)
            .target(target)
            .attach(&mut place.session)
            .await
            .map_err(why)?;
        let sent = sender.send_batchable(answer()).await.map_err(why)?;
        let reply = next(&mut replies).await?;
        same("pong".to_string(), text(&reply)?)?;
        replies.accept(&reply).await.map_err(why)?;
        accepted(sent.await.map_err(why)?)?;
        sender.close().await.map_err(why)?;
    }
    Ok(())
}

async fn filtered(place: &mut Place, address: &str, key: &str, value: &str) -> Result<Receiver, String> {
    let name = place.link();
    let source = Source::builder()
        .address(address)
        .add_to_filter_using_legacy_format(key, value)
        .build();
    Receiver::builder()
        .name(name)
        .source(source)
        .attach(&mut place.session)
        .await
        .map_err(why)
}

async fn selector(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    let mut sender = place.sender(&queue).await?;
    for n in 0..4i64 {
        let message = Message::builder()
            .application_properties(ApplicationProperties::builder().insert("n", n).build())
            .value(format!("m{n}"))
            .build();
        accepted(sender.send(message).await.map_err(why)?)?;
    }
    let mut some = filtered(place, &queue, "apache.org:selector-filter:string", "n >= 2").await?;
    take(&mut some, &["m2", "m3"]).await?;
    some.close().await.map_err(why)?;
    let mut rest = place.receiver(&queue).await?;
    take(&mut rest, &["m0", "m1"]).await
}

async fn stream(place: &mut Place) -> Done {
    place.fill("stream", &["a", "b", "c"]).await?;
    for _ in 0..2 {
        let mut reader = filtered(place, "stream", "enmasse:start", "first").await?;
        // What other clients wrote may be in front.
        while text(&next(&mut reader).await?)? != "c" {}
        reader.close().await.map_err(why)?;
    }
    Ok(())
}

async fn many_unsettled(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    let mut sender = place.sender(&queue).await?;
    let mut sent = Vec::new();
    for n in 0..300 {
        sent.push(sender.send_batchable(format!("m{n}")).await.map_err(why)?);
    }
    for outcome in sent {
        accepted(outcome.await.map_err(why)?)?;
    }
    let mut receiver = place.patient(&queue, ReceiverSettleMode::First).await?;
    receiver.set_credit(300).await.map_err(why)?;
    let mut unsettled = Vec::new();
    for n in 0..300 {
        let delivery = next(&mut receiver).await?;
        same(format!("m{n}"), text(&delivery)?)?;
        unsettled.push(delivery);
    }
    receiver.accept_all(unsettled.iter()).await.map_err(why)
}

async fn transactions(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    place.fill(&queue, &["in"]).await?;
    let controller = Controller::attach(&mut place.session, "controller")
        .await
        .map_err(why)?;
    let mut sender = place.sender("other").await?;
    let mut receiver = place.patient(&queue, ReceiverSettleMode::First).await?;
    for is_committed in [false, true] {
        receiver.set_credit(1).await.map_err(why)?;
        let delivery = next(&mut receiver).await?;
        same("in".to_string(), text(&delivery)?)?;
        let transaction = Transaction::declare(&controller, None).await.map_err(why)?;
        let body = if is_committed { "committed" } else { "rolled back" };
        accepted(transaction.post(&mut sender, body.to_string()).await.map_err(why)?)?;
        transaction.accept(&mut receiver, &delivery).await.map_err(why)?;
        if is_committed {
            transaction.commit().await.map_err(why)?;
        } else {
            transaction.rollback().await.map_err(why)?;
        }
    }
    let mut other = place.receiver("other").await?;
    take(&mut other, &["committed"]).await?;
    place.fill(&queue, &["next"]).await?;
    receiver.set_credit(1).await.map_err(why)?;
    take(&mut receiver, &["next"]).await?;
    controller.close().await.map_err(why)
}

async fn unknown_address(place: &mut Place) -> Done {
    let queue = place.queue.clone();
    // Where the node's attach and detach come together this client forgets the reason, and reuses the handle before it
    // has answered: the session is lost, the connection is not.
    for is_sender in [true, false] {
        let mut session = Session::begin(&mut place.connection).await.map_err(why)?;
        std::mem::swap(&mut session, &mut place.session);
        let is_attached = if is_sender {
            place.sender("nowhere").await.is_ok()
        } else {
            place.receiver("nowhere").await.is_ok()
        };
        place.session = session;
        if is_attached {
            return Err("the link was attached".into());
        }
    }
    place.fill(&queue, &["alive"]).await?;
    let mut receiver = place.receiver(&queue).await?;
    take(&mut receiver, &["alive"]).await
}

async fn play(name: &str, place: &mut Place) -> Done {
    match name {
        "properties" => properties(place).await,
        "exchange" => exchange(place).await,
        "outcomes" => outcomes(place).await,
        "direct-outcomes" => direct_outcomes(place).await,
        "settled" => settled(place).await,
        "settle-second" => settle_second(place).await,
        "credit" => credit(place).await,
        "drain" => drain(place).await,
        "large-message" => large_message(place).await,
        "request-reply" => request_reply(place).await,
        "selector" => selector(place).await,
        "stream" => stream(place).await,
        "many-unsettled" => many_unsettled(place).await,
        "transactions" => transactions(place).await,
        "unknown-address" => unknown_address(place).await,
        _ => Err(format!("there is no scenario {name}")),
    }
}

async fn run(name: &str, url: &str, sasl: Option<SaslProfile>) -> Done {
    let mut fields = Fields::new();
    fields.insert(Symbol::from("product"), Value::from("interop"));
    let builder = Connection::builder()
        .container_id(format!("fe2o3-{name}"))
        .properties(fields);
    let builder = match sasl {
        Some(profile) => builder.sasl_profile(profile),
        None => builder.sasl_profile(SaslProfile::Anonymous),
    };
    let mut connection = builder.open(url).await.map_err(why)?;
    let session = Session::begin(&mut connection).await.map_err(why)?;
    let mut place = Place {
        connection,
        session,
        queue: name.to_string(),
        links: 0,
    };
    play(name, &mut place).await?;
    place.session.end().await.map_err(why)?;
    place.connection.close().await.map_err(why)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (url, user, password) = (&arguments[1], &arguments[2], &arguments[3]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for name in &arguments[5..] {
        let sasl = match arguments[4].as_str() {
            "SCRAM-SHA-1" => Some(SaslScramSha1::new(user, password).into()),
            "SCRAM-SHA-256" => Some(SaslScramSha256::new(user, password).into()),
            "SCRAM-SHA-512" => Some(SaslScramSha512::new(user, password).into()),
            _ => None,
        };
        let played = runtime.block_on(async {
            tokio::time::timeout(PATIENCE, run(name, url, sasl))
                .await
                .unwrap_or_else(|_| Err("it takes too long".into()))
        });
        match played {
            Ok(()) => println!("{name} ok"),
            Err(reason) => println!("{name} failed: {}", reason.replace('\n', " ")),
        }
    }
}
