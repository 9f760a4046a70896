// Scenarios of go-amqp against a node. Prints "NAME ok" or "NAME failed: WHY" for each one.
//
// Arguments: URL USER PASSWORD AUTHORITY SCENARIO... (no user: anonymous; the authority is a file for TLS). The space
// has the anycast address "anycast", the stream "stream", and a queue for each scenario, by its name.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const patience = 20 * time.Second

type place struct {
	ctx     context.Context
	conn    *amqp.Conn
	session *amqp.Session
	queue   string
}

var scenarios = map[string]func(*place){
	"properties":      properties,
	"exchange":        exchange,
	"outcomes":        outcomes,
	"direct-outcomes": directOutcomes,
	"settled":         settled,
	"settle-second":   settleSecond,
	"credit":          credit,
	"drain":           drain,
	"large-message":   largeMessage,
	"request-reply":   requestReply,
	"selector":        selector,
	"stream":          stream,
	"sessions":        sessions,
	"unknown-address": unknownAddress,
}

func main() {
	options := &amqp.ConnOptions{
		ContainerID: "go-amqp",
		Properties:  map[string]any{"product": "interop"},
		SASLType:    amqp.SASLTypeAnonymous(),
	}
	if os.Args[2] != "" {
		options.SASLType = amqp.SASLTypePlain(os.Args[2], os.Args[3])
	}
	if os.Args[4] != "" {
		pem, err := os.ReadFile(os.Args[4])
		check(err)
		options.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		options.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	for _, name := range os.Args[5:] {
		if why := run(name, options); why == nil {
			fmt.Println(name, "ok")
		} else {
			fmt.Println(name, "failed:", strings.ReplaceAll(fmt.Sprint(why), "\n", " "))
		}
	}
}

func run(name string, options *amqp.ConnOptions) (why any) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := amqp.Dial(ctx, os.Args[1], options)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() { why = recover() }()
	session, err := conn.NewSession(ctx, nil)
	check(err)
	scenarios[name](&place{ctx, conn, session, name})
	return nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func same(expected, found any) {
	if !reflect.DeepEqual(expected, found) {
		panic(fmt.Sprintf("expected %v, found %v", expected, found))
	}
}

func (p *place) sender(address string, options *amqp.SenderOptions) *amqp.Sender {
	sender, err := p.session.NewSender(p.ctx, address, options)
	check(err)
	return sender
}

func (p *place) receiver(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	receiver, err := p.session.NewReceiver(p.ctx, address, options)
	check(err)
	return receiver
}

func (p *place) send(sender *amqp.Sender, bodies ...any) {
	for _, body := range bodies {
		check(sender.Send(p.ctx, &amqp.Message{Value: body}, nil))
	}
}

func (p *place) next(receiver *amqp.Receiver) *amqp.Message {
	message, err := receiver.Receive(p.ctx, nil)
	check(err)
	return message
}

func (p *place) take(receiver *amqp.Receiver, bodies ...any) {
	for _, body := range bodies {
		message := p.next(receiver)
		same(body, message.Value)
		check(receiver.AcceptMessage(p.ctx, message))
	}
}

// attempts is the delivery-count, which is 0 where there is no header.
func attempts(message *amqp.Message) uint32 {
	if message.Header == nil {
		return 0
	}
	return message.Header.DeliveryCount
}

func properties(p *place) {
	same("enmasse", p.conn.Properties()["product"])
	sender := p.sender(p.queue, &amqp.SenderOptions{Properties: map[string]any{"acme:why": "test"}})
	check(sender.Close(p.ctx))
}

func exchange(p *place) {
	sender, receiver := p.sender(p.queue, nil), p.receiver(p.queue, nil)
	for n := int64(0); n < 50; n++ {
		subject := fmt.Sprint("s", n)
		check(sender.Send(p.ctx, &amqp.Message{
			Header:                &amqp.MessageHeader{Durable: n%2 == 0, Priority: 4},
			Annotations:           amqp.Annotations{"x-opt-n": n},
			Properties:            &amqp.MessageProperties{MessageID: uint64(n), Subject: &subject},
			ApplicationProperties: map[string]any{"n": n},
			Data:                  [][]byte{[]byte("part "), []byte("and part")},
		}, nil))
	}
	for n := int64(0); n < 50; n++ {
		message := p.next(receiver)
		same(n%2 == 0, message.Header.Durable)
		same(n, message.Annotations["x-opt-n"])
		same(uint64(n), message.Properties.MessageID)
		same(fmt.Sprint("s", n), *message.Properties.Subject)
		same(n, message.ApplicationProperties["n"])
		same([][]byte{[]byte("part "), []byte("and part")}, message.Data)
		check(receiver.AcceptMessage(p.ctx, message))
	}
}

func outcomes(p *place) {
	sender, receiver := p.sender(p.queue, nil), p.receiver(p.queue, &amqp.ReceiverOptions{Credit: 1})
	p.send(sender, "again")
	check(receiver.ReleaseMessage(p.ctx, p.next(receiver)))
	second := p.next(receiver)
	same(uint32(0), attempts(second))
	why := amqp.Annotations{"x-opt-why": "tired"}
	check(receiver.ModifyMessage(p.ctx, second, &amqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: why}))
	third := p.next(receiver)
	same(uint32(1), attempts(third))
	same("tired", third.Annotations["x-opt-why"])
	info := map[string]any{"field": "amount"}
	check(receiver.RejectMessage(p.ctx, third, &amqp.Error{Condition: "acme:invalid", Info: info}))
	p.send(sender, "last")
	p.take(receiver, "last")
}

func directOutcomes(p *place) {
	receiver := p.receiver("anycast", &amqp.ReceiverOptions{Credit: 10})
	sender := p.sender("anycast", nil)
	expect := func(settle func(*amqp.Message) error) amqp.DeliveryState {
		receipt, err := sender.SendWithReceipt(p.ctx, amqp.NewMessage([]byte("m")), nil)
		check(err)
		check(settle(p.next(receiver)))
		state, err := receipt.Wait(p.ctx)
		check(err)
		return state
	}
	accepted := expect(func(m *amqp.Message) error { return receiver.AcceptMessage(p.ctx, m) })
	same(reflect.TypeOf(&amqp.StateAccepted{}), reflect.TypeOf(accepted))
	released := expect(func(m *amqp.Message) error { return receiver.ReleaseMessage(p.ctx, m) })
	same(reflect.TypeOf(&amqp.StateReleased{}), reflect.TypeOf(released))
	modified := expect(func(m *amqp.Message) error {
		return receiver.ModifyMessage(p.ctx, m, &amqp.ModifyMessageOptions{Annotations: amqp.Annotations{"x-opt-a": "b"}})
	})
	same("b", modified.(*amqp.StateModified).MessageAnnotations["x-opt-a"])
	rejected := expect(func(m *amqp.Message) error {
		info := map[string]any{"field": "amount"}
		return receiver.RejectMessage(p.ctx, m, &amqp.Error{Condition: "acme:invalid", Info: info})
	})
	reason := rejected.(*amqp.StateRejected).Error
	same(amqp.ErrCond("acme:invalid"), reason.Condition)
	same("amount", reason.Info["field"])
}

func settled(p *place) {
	sender := p.sender(p.queue, &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	p.send(sender, "a", "b")
	receiver := p.receiver(p.queue, &amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()})
	same("a", p.next(receiver).Value)
	same("b", p.next(receiver).Value)
	check(receiver.Close(p.ctx))
	p.send(p.sender(p.queue, &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeUnsettled.Ptr()}), "c")
	p.take(p.receiver(p.queue, nil), "c")
}

func settleSecond(p *place) {
	second := amqp.ReceiverSettleModeSecond.Ptr()
	p.send(p.sender(p.queue, &amqp.SenderOptions{RequestedReceiverSettleMode: second}), "a", "b")
	p.take(p.receiver(p.queue, &amqp.ReceiverOptions{SettlementMode: second}), "a", "b")
}

func credit(p *place) {
	p.send(p.sender(p.queue, nil), "a", "b", "c")
	receiver := p.receiver(p.queue, &amqp.ReceiverOptions{Credit: -1})
	check(receiver.IssueCredit(2))
	p.take(receiver, "a", "b")
	same((*amqp.Message)(nil), receiver.Prefetched())
	check(receiver.IssueCredit(1))
	p.take(receiver, "c")
}

func drain(p *place) {
	p.send(p.sender(p.queue, nil), "a")
	receiver := p.receiver(p.queue, &amqp.ReceiverOptions{Credit: -1})
	check(receiver.IssueCredit(10))
	p.take(receiver, "a")
	check(receiver.DrainCredit(p.ctx, nil))
	p.send(p.sender(p.queue, nil), "b")
	check(receiver.IssueCredit(1))
	p.take(receiver, "b")
}

func largeMessage(p *place) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	sender, receiver := p.sender(p.queue, nil), p.receiver(p.queue, nil)
	check(sender.Send(p.ctx, amqp.NewMessage(content), nil))
	message := p.next(receiver)
	same(true, bytes.Equal(content, message.GetData()))
	check(receiver.AcceptMessage(p.ctx, message))
}

func requestReply(p *place) {
	replies := p.receiver("", &amqp.ReceiverOptions{DynamicAddress: true})
	address := replies.Address()
	requests := p.receiver("anycast", nil)
	asking := make(chan error, 1)
	go func() {
		sender, err := p.session.NewSender(p.ctx, "anycast", nil)
		if err == nil {
			properties := &amqp.MessageProperties{MessageID: "q-1", ReplyTo: &address}
			err = sender.Send(p.ctx, &amqp.Message{Properties: properties, Value: "ping"}, nil)
		}
		asking <- err
	}()
	request := p.next(requests)
	check(requests.AcceptMessage(p.ctx, request))
	check(<-asking)
	// The anonymous terminus, and a link of its own.
	for _, sender := range []*amqp.Sender{p.sender("", nil), p.sender(*request.Properties.ReplyTo, nil)} {
		answer := &amqp.MessageProperties{To: request.Properties.ReplyTo, CorrelationID: request.Properties.MessageID}
		check(sender.Send(p.ctx, &amqp.Message{Properties: answer, Value: "pong"}, &amqp.SendOptions{Settled: true}))
		reply := p.next(replies)
		same("q-1", reply.Properties.CorrelationID)
		same("pong", reply.Value)
		check(replies.AcceptMessage(p.ctx, reply))
	}
}

func selector(p *place) {
	sender := p.sender(p.queue, nil)
	for n := int64(0); n < 4; n++ {
		check(sender.Send(p.ctx, &amqp.Message{ApplicationProperties: map[string]any{"n": n}, Value: n}, nil))
	}
	filters := []amqp.LinkFilter{amqp.NewSelectorFilter("n >= 2")}
	some := p.receiver(p.queue, &amqp.ReceiverOptions{Filters: filters})
	same("n >= 2", some.LinkSourceFilterValue("apache.org:selector-filter:string"))
	p.take(some, int64(2), int64(3))
	check(some.Close(p.ctx))
	p.take(p.receiver(p.queue, nil), int64(0), int64(1))
}

func stream(p *place) {
	p.send(p.sender("stream", nil), "a", "b", "c")
	for reader := 0; reader < 2; reader++ {
		filters := []amqp.LinkFilter{amqp.NewLinkFilter("enmasse:start", 0, "first")}
		p.take(p.receiver("stream", &amqp.ReceiverOptions{Filters: filters}), "a", "b", "c")
	}
}

func sessions(p *place) {
	for n := 0; n < 20; n++ {
		session, err := p.conn.NewSession(p.ctx, nil)
		check(err)
		other := &place{p.ctx, p.conn, session, p.queue}
		other.send(other.sender(p.queue, nil), n)
		other.take(other.receiver(p.queue, nil), int64(n))
		check(session.Close(p.ctx))
	}
}

func unknownAddress(p *place) {
	_, err := p.session.NewReceiver(p.ctx, "nowhere", nil)
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		panic(fmt.Sprintf("no reason of the node: %v", err))
	}
	same(amqp.ErrCondNotFound, refused.Condition)
	_, err = p.session.NewSender(p.ctx, "nowhere", nil)
	if !errors.As(err, &refused) {
		panic(fmt.Sprintf("no reason of the node: %v", err))
	}
	p.send(p.sender(p.queue, nil), "alive")
	p.take(p.receiver(p.queue, nil), "alive")
}
