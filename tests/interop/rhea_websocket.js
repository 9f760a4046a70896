// Sends and receives over WebSocket with rhea, in a browser or in Node.js: the same steps in both.
'use strict';

/* exported play */
function play(rhea, WebSocketClass, asked, done) {
    const container = rhea.create_container();
    const report = {received: [], outcomes: [], errors: []};
    const bodies = ['small', 'x'.repeat(asked.large), ...Array.from({length: asked.count}, (_, n) => 'message ' + n)];
    const connect = container.websocket_connect(WebSocketClass);
    const connection = container.connect({
        connection_details: connect(asked.url, ['amqp'], asked.options || undefined),
        reconnect: false,
        username: 'anybody',
        password: 'anything',
    });
    let sent = 0;

    container.on('connection_open', () => {
        connection.open_receiver({source: asked.address, credit_window: 10});
        connection.open_sender(asked.address);
    });
    container.on('sendable', (context) => {
        while (sent < bodies.length && context.sender.sendable()) {
            context.sender.send({body: bodies[sent++]});
        }
    });
    container.on('accepted', () => note('accepted'));
    container.on('released', () => note('released'));
    container.on('rejected', () => note('rejected'));
    container.on('message', (context) => {
        report.received.push(context.message.body.length > 100 ? context.message.body.length : context.message.body);
        finish();
    });
    for (const name of ['connection_error', 'session_error', 'sender_error', 'receiver_error', 'disconnected']) {
        container.on(name, (context) => {
            report.errors.push(name + ': ' + String(context.error || (context[name.split('_')[0]] || {}).error));
            if (!report.is_over) {
                report.is_over = true;
                done(report);
            }
        });
    }
    container.on('connection_close', () => {
        if (!report.is_over) {
            report.is_over = true;
            done(report);
        }
    });

    function note(outcome) {
        report.outcomes.push(outcome);
        finish();
    }

    function finish() {
        if (report.received.length === bodies.length && report.outcomes.length === bodies.length) {
            connection.close();
        }
    }
}

if (typeof window === 'undefined') {
    const asked = JSON.parse(process.argv[2]);
    setTimeout(() => process.exit(1), 40000).unref();
    play(require('rhea'), require('ws'), asked, (report) => {
        console.log(JSON.stringify(report));
        process.exit(0);
    });
}
