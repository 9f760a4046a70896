// Scenarios with rhea, one after the other: a line of JSON on standard input names and parametrises each, and a line
// of JSON on standard output reports what came of it, or {"failed": ...}.
'use strict';

const readline = require('readline');
const rhea = require('rhea');

const waiting = [];
let asked = null;
let container = null;
let report = null;
let timer = null;

function tell(told) {
    clearTimeout(timer);
    asked = null;
    console.log(JSON.stringify(told));
    play_next();
}

function fail(why) {
    if (asked) {
        tell({failed: String(why), report});
    }
}

function connect(options) {
    return container.connect(Object.assign({host: '127.0.0.1', port: asked.port, reconnect: false}, options));
}

let is_finished = false;

function finish(...connections) {
    if (is_finished) {
        return;
    }
    is_finished = true;
    let open = connections.length;
    for (const connection of connections) {
        connection.once('connection_close', () => {
            if (--open === 0) {
                tell(report);
            }
        });
        connection.close();
    }
}

function describe(state) {
    const details = {};
    if (state && state.error) {
        details.condition = state.error.condition;
        details.description = state.error.description;
    }
    if (state && state.message_annotations) {
        details.annotations = state.message_annotations;
    }
    if (state && state.delivery_failed) details.failed = true;
    if (state && state.undeliverable_here) details.undeliverable = true;
    return details;
}

function on_outcomes(sender, done) {
    for (const name of ['accepted', 'rejected', 'released', 'modified']) {
        sender.on(name, context => {
            // To rhea a modified delivery is also a released one.
            if (name === 'released' && context.delivery.remote_state.constructor.composite_type === 'modified') {
                return;
            }
            report.outcomes.push([context.delivery.id, name, describe(context.delivery.remote_state)]);
            done();
        });
    }
}

function body_of(message) {
    const body = message.body;
    return Buffer.isBuffer(body) ? {bytes: body.length, first: body[0], last: body[body.length - 1]}
        : body && body.typecode ? {bytes: body.content.length, first: body.content[0]} : body;
}

const answers = {
    accept: delivery => delivery.accept(),
    release: delivery => delivery.release(),
    reject: delivery => delivery.reject({condition: 'acme:invalid', description: 'no amount'}),
    modify: delivery => delivery.modified({
        delivery_failed: true, undeliverable_here: true, message_annotations: {'x-opt-why': 'tired'},
    }),
};

const scenarios = {
    // Receive from source and, once that stands, send messages to target.
    exchange() {
        const connection = connect();
        const messages = asked.messages || [];
        const expect = asked.expect === undefined ? messages.length : asked.expect;
        let sent = 0;
        let sender = null;

        function look() {
            const told = asked.settled ? sent : report.outcomes.length;
            if (sent === messages.length && told >= messages.length && report.received.length >= expect) {
                finish(connection);
            }
        }

        function start_sending() {
            sender = connection.open_sender({
                target: asked.anonymous ? {} : {address: asked.target || asked.source},
                snd_settle_mode: asked.settled ? 1 : 2,
            });
            on_outcomes(sender, look);
            sender.on('sendable', () => {
                report.credit.push(sender.credit);
                while (sender.sendable() && sent < messages.length) {
                    const message = Object.assign({}, messages[sent++]);
                    if (message.size) {
                        message.body = rhea.message.data_section(Buffer.alloc(message.size, 'x'));
                        delete message.size;
                    }
                    sender.send(message);
                }
                look();
            });
            sender.on('sender_error', context => {
                report.errors.push(context.sender.error.condition);
                finish(connection);
            });
            look();
        }

        if (!asked.source) {
            start_sending();
            return;
        }
        const source = {address: asked.source};
        if (asked.filter) {
            source.filter = asked.filter;
        }
        if (asked.selector) {
            source.filter = rhea.filter.selector(asked.selector);
        }
        if (asked.browse) {
            source.distribution_mode = 'copy';
        }
        const receiver = connection.open_receiver({
            source, autoaccept: false, credit_window: asked.credit === undefined ? 10 : asked.credit,
            rcv_settle_mode: asked.second ? 1 : 0,
        });
        receiver.once('receiver_open', start_sending);
        receiver.on('receiver_error', context => {
            report.errors.push(context.receiver.error.condition);
        });
        receiver.on('message', context => {
            const {body, message_id, subject, application_properties, delivery_count} = context.message;
            report.received.push({
                body: body_of(context.message), message_id, subject, application_properties,
                delivery_count: delivery_count || 0,
                annotations: context.message.message_annotations, settled: context.delivery.remote_settled,
            });
            if (!context.delivery.remote_settled) {
                const wanted = (asked.answers || [])[report.received.length - 1] || 'accept';
                answers[wanted](context.delivery);
            }
            look();
        });
    },

    // A receiver that is refused.
    refused() {
        const connection = connect();
        const filter = rhea.filter.selector(asked.selector);
        connection.open_receiver({source: {address: asked.source, filter}}).on('receiver_error', context => {
            report.errors.push([context.receiver.error.condition, context.receiver.error.description]);
            finish(connection);
        });
    },

    // A durable or shared subscriber, which takes some messages and leaves by detach, close or with its connection.
    subscribe() {
        const connection = connect({container_id: asked.container});
        const receiver = connection.open_receiver({
            name: asked.name, credit_window: 0, autoaccept: true,
            source: {
                address: asked.source, durable: asked.durable, expiry_policy: asked.expiry,
                capabilities: asked.capabilities,
            },
        });
        const leave = () => {
            if (asked.leave === 'connection') {
                finish(connection);
                return;
            }
            receiver.once('receiver_close', () => finish(connection));
            receiver.once('receiver_detached', () => finish(connection));
            if (asked.leave === 'detach') {
                receiver.detach();
            } else {
                receiver.close();
            }
        };
        receiver.on('receiver_open', () => {
            if (!asked.expect) {
                leave();
            } else {
                receiver.add_credit(asked.expect);
            }
        });
        receiver.on('message', context => {
            report.received.push(context.message.body);
            if (report.received.length === asked.expect) {
                setImmediate(leave);
            }
        });
    },

    // A sender that is there first; then a receiver without, then with credit.
    patience() {
        const connection = connect();
        const sender = connection.open_sender(asked.address);
        sender.on('sender_open', () => {
            const idle = connection.open_receiver({source: asked.address, credit_window: 0});
            idle.on('receiver_open', () => {
                report.credit.push(sender.credit);
                const receiver = connection.open_receiver({
                    source: asked.address, credit_window: 0, autoaccept: false,
                });
                receiver.on('message', context => answers[asked.answer](context.delivery));
                receiver.on('receiver_open', () => receiver.add_credit(1));
            });
        });
        sender.once('sendable', () => {
            report.credit.push(sender.credit);
            sender.send({body: 'at last'});
        });
        on_outcomes(sender, () => finish(connection));
    },

    // Many senders over a few connections, one receiver with a small credit.
    crowd() {
        const receiving = connect();
        const sending = [];
        let accepted = 0;
        receiving.open_receiver({source: asked.address, credit_window: asked.credit}).on('message', context => {
            report.received.push(context.message.body);
        });
        for (let at = 0; at < asked.connections; at++) {
            const connection = connect();
            sending.push(connection);
            for (let number = at; number < asked.senders; number += asked.connections) {
                const sender = connection.open_sender({target: asked.address, name: `sender-${number}`});
                let is_sent = false;
                const send = () => {
                    if (!is_sent && sender.sendable()) {
                        is_sent = true;
                        sender.send({body: sender.name});
                    }
                };
                sender.on('sendable', send);
                sender.on('released', () => {
                    is_sent = false;
                    send();
                });
                sender.on('accepted', () => {
                    if (++accepted === asked.senders) {
                        finish(receiving, ...sending);
                    }
                });
            }
        }
    },

    // A request over a dynamic address, answered through the anonymous terminus of another connection.
    request() {
        const serving = connect();
        const asking = connect();
        const replies = serving.open_sender({target: {}});
        serving.open_receiver(asked.address).on('message', context => {
            const {reply_to, correlation_id, body} = context.message;
            replies.send({to: reply_to, correlation_id, body: `${body} pong`});
        });
        const receiver = asking.open_receiver({source: {dynamic: true}});
        receiver.on('receiver_open', () => {
            report.reply_to = receiver.source.address;
            asking.open_sender(asked.address).once('sendable', context => {
                context.sender.send({reply_to: report.reply_to, correlation_id: 'c-1', body: 'ping'});
            });
        });
        receiver.on('message', context => {
            report.received.push([context.message.correlation_id, context.message.body]);
            finish(asking, serving);
        });
    },

    // Unknown addresses, then one that exists.
    unknown() {
        const connection = connect();
        const refused = name => context => {
            report.errors.push([name, context[name].error.condition]);
            if (report.errors.length === 2) {
                const sender = connection.open_sender(asked.address);
                sender.once('sendable', () => sender.send({body: 'alive'}));
                on_outcomes(sender, () => finish(connection));
            }
        };
        connection.open_sender('nowhere').on('sender_error', refused('sender'));
        connection.open_receiver('nowhere').on('receiver_error', refused('receiver'));
    },

    // A receiver that asks to drain what there is.
    drain() {
        const connection = connect();
        const receiver = connection.open_receiver({source: asked.address, credit_window: 0});
        receiver.on('message', context => report.received.push(context.message.body));
        receiver.on('receiver_drained', () => {
            report.drained = true;
            finish(connection);
        });
        receiver.on('receiver_open', () => {
            receiver.drain = true;
            receiver.add_credit(asked.credit);
        });
    },
};

function play_next() {
    if (asked || waiting.length === 0) {
        return;
    }
    asked = waiting.shift();
    is_finished = false;
    report = {received: [], outcomes: [], errors: [], credit: []};
    timer = setTimeout(() => fail('the scenario did not come to its end'), 45000);
    const its = rhea.create_container();
    const is_now = () => its === container;
    container = its;
    its.on('connection_error', context => is_now() && fail(`connection: ${context.connection.error}`));
    its.on('disconnected', context => context.error && is_now() && fail(`disconnected: ${context.error}`));
    its.on('sender_error', context => is_now() && fail(`sender: ${context.sender.error}`));
    its.on('receiver_error', context => is_now() && fail(`receiver: ${context.receiver.error}`));
    scenarios[asked.scenario]();
}

process.on('uncaughtException', error => fail(error.stack));
readline.createInterface({input: process.stdin}).on('line', line => {
    waiting.push(JSON.parse(line));
    play_next();
});
